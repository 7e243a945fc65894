// Softmax and cross-entropy of one image. A label that names no class gives the loss NaN.

template <int CLASSES, class Report>
__device__ __forceinline__ void cross_entropy(
    const float* logits, long long label, float* errors, Report report)
{
    for (int j = threadIdx.x; j < CLASSES; j += THREADS) {
        float most = logits[0], sum = 0.0f;
#pragma unroll 16
        for (int i = 1; i < CLASSES; i++) most = fmaxf(most, logits[i]);
#pragma unroll 16
        for (int i = 0; i < CLASSES; i++) sum += expf(logits[i] - most);
        errors[j] = expf(logits[j] - most) / sum - (j == label ? 1.0f : 0.0f);
        if (j == 0) {
            const bool known = label >= 0 && label < CLASSES;
            report(known ? logf(sum) + most - logits[label] : __int_as_float(0x7fffffff));
        }
    }
}
