        // In the loop over tiles, behind the scores: their softmax, and their weighted values added to the output. It is
        // text and no function, since a function changes the registers of the loop.
        float tile_max = NEGATIVE_INFINITY;
        for (int key = tid; key < tile; key += THREADS)
            tile_max = fmaxf(tile_max, scores[key]);
        float new_max = fmaxf(row_max, block_max<SHARED>(tile_max, reduction));
        float correction = expf(row_max - new_max);
        float tile_sum = 0.0f;
        for (int key = tid; key < tile; key += THREADS) {
            float p = expf(scores[key] - new_max);
            scores[key] = p;
            tile_sum += p;
        }
        row_sum = correction * row_sum + block_sum<SHARED>(tile_sum, reduction);

        for (int dim = tid; dim < hdim; dim += THREADS) {
            float acc = 0.0f;
            if (tile_start > 0)
                acc = out_row[dim] * correction;
            for (int key = 0; key < tile; ++key)
                acc += scores[key] * v_tile[key * hdim + dim];
            out_row[dim] = acc;
        }
        row_max = new_max;
        __syncthreads();
