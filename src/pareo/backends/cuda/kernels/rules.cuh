// The rules by which optimizers move a parameter, as in operators/update.
#pragma once

enum Rule { DESCEND, MOMENTUM, NESTEROV, LION, ADAM, ADAMW };

// Its new value, from its gradient; `first` and `second` are what is kept for it: its velocity, or its
// moments. The numbers are the rate, then in the operator's order: momentum and decay; beta1, beta2 and
// decay (LION); or the two corrections, beta1, beta2, epsilon and decay (ADAM).
template <int R> __device__ inline float moved(
    float parameter, float gradient, float& first, float& second, const float (&n)[7])
{
    const float rate = n[0];
    if (R == DESCEND) return parameter - rate * gradient;
    if (R == MOMENTUM || R == NESTEROV) {
        const float d = gradient + n[2] * parameter;
        first = n[1] * first + d;
        return parameter - rate * (R == NESTEROV ? d + n[1] * first : first);
    }
    if (R == LION) {
        const float c = n[1] * first + (1 - n[1]) * gradient;
        first = n[2] * first + (1 - n[2]) * gradient;
        const float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c;
        return parameter * (1 - rate * n[3]) - rate * sign;
    }
    const float d = R == ADAM ? gradient + n[6] * parameter : gradient;
    first = n[3] * first + (1 - n[3]) * d;
    second = n[4] * second + (1 - n[4]) * d * d;
    const float kept = R == ADAMW ? parameter * (1 - rate * n[6]) : parameter;
    return kept - rate / n[1] * first / (sqrtf(second) / sqrtf(n[2]) + n[5]);
}
