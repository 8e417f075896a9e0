// An attention of FlashInfer's headers in float16, for one sequence; HDIM, ROPE, CAUSAL and PROMPT are set by who compiles.
// q, k and v are [heads, rows, HDIM] without gaps, o is [rows, heads, HDIM]. RoPE rotates pairs (i, i + HDIM / 2).
#include <cuda_fp16.h>

#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

namespace fi = flashinfer;
using Plain = fi::DefaultAttention<false, false, false, false>;
constexpr auto EMBEDDING = ROPE ? fi::PosEncodingMode::kRoPELlama : fi::PosEncodingMode::kNone;

// `workspace` takes partial results. Returns a cudaError_t, or -1 where FlashInfer throws.
extern "C" int attend(half* q, half* k, half* v, half* o, half* workspace, int heads, int kv_heads, int seq_q,
                      int seq_k, float scale, float base, cudaStream_t stream) {
  try {
#if PROMPT
    constexpr auto MASK = CAUSAL ? fi::MaskMode::kCausal : fi::MaskMode::kNone;
    fi::SinglePrefillParams<half, half, half> given(
        q, k, v, nullptr, o, nullptr, nullptr, heads, kv_heads, seq_q, seq_k, HDIM, seq_q * HDIM, HDIM, seq_k * HDIM,
        HDIM, -1, 0.f, scale, 1.f, base);
    return fi::SinglePrefillWithKVCacheDispatched<HDIM, HDIM, EMBEDDING, false, MASK, Plain>(given, workspace, stream);
#else
    fi::SingleDecodeParams<half, half, half> given(q, k, v, o, nullptr, seq_k, heads, kv_heads, fi::QKVLayout::kHND,
                                                   HDIM, -1, 0.f, scale, 1.f, base);
    return fi::SingleDecodeWithKVCacheDispatched<HDIM, EMBEDDING, Plain>(given, workspace, stream);
#endif
  } catch (...) {
    return -1;
  }
}
