"""ALiBi in the V8 cores: a bias by distance on the scores."""

from numba import cuda, float32, int32

from .embedding import Embedding


@cuda.jit(device=True)
def by_distance(slopes, head, distance):
    return -slopes[head] * abs(float32(int32(distance)))


ALIBI = Embedding("alibi", bias=by_distance, query=False, keys=False)
