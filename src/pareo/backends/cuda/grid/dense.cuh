// The gradients of a dense layer of few images, and what follows from them.
#pragma once

// The gradients of inputs and of weights, which are read once. Rows of a tile are those of weights (IN, OUT); SHARE warps share one. M images have inputs x and errors g.
// `end` is called for image m and input n; `end_weight` for row m and column n, with the sum over the images.
template <int M, int IN, int OUT, int SHARE, class Early, class End, class EarlyWeight, class EndWeight>
__device__ inline void dense_back(int tile, float* room, const float* g, const float* weights, const float* x, Early early,
    End end, EarlyWeight early_weight, EndWeight end_weight)
{
    constexpr int ROWS = WARPS / SHARE, STEP = SHARE * LANES, EACH = M <= 4 ? 8 : 4;
    const int thread = this_thread(), warp = thread / LANES, lane = thread % LANES;
    const int row = tile * ROWS + warp / SHARE, i = least(row, IN - 1);
    const auto given = early(least(lane, M - 1), i);
    float inputs[M], sum[M] = {};
#pragma unroll
    for (int m = 0; m < M; m++) inputs[m] = x[m * IN + i];
#pragma unroll 1
    for (int first = warp % SHARE * LANES + lane; first < OUT; first += EACH * STEP) {
        float value[EACH], errors[EACH][M];
        decltype(early_weight(0, 0)) known[EACH];
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const int o = least(first + u * STEP, OUT - 1);
            value[u] = weights[i * OUT + o];
            known[u] = early_weight(i, o);
#pragma unroll
            for (int m = 0; m < M; m++) errors[u][m] = g[m * OUT + o];
        }
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const int o = first + u * STEP;
            if (o >= OUT) break;
            float total = 0;
#pragma unroll
            for (int m = 0; m < M; m++) {
                sum[m] += errors[u][m] * value[u];
                total += errors[u][m] * inputs[m];
            }
            if (row < IN) end_weight(i, o, total, known[u]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++) {
        const float total = total_of_lanes(sum[m]);
        if (lane == 0) room[warp * M + m] = total;
    }
    __syncthreads();
    if (row < IN && warp % SHARE == 0)
        for (int m = lane; m < M; m += LANES) {
            float total = 0;
            for (int w = 0; w < SHARE; w++) total += room[(warp + w) * M + m];
            end(m, i, total, m == lane ? given : early(m, i));
        }
}

// The gradient of the weights alone.
template <int M, int IN, int OUT, int SHARE, class Early, class End> __device__ inline void weights_back(
    int tile, const float* g, const float* x, Early early, End end)
{
    constexpr int ROWS = WARPS / SHARE, STEP = SHARE * LANES, EACH = M <= 4 ? 8 : 4;
    const int thread = this_thread(), warp = thread / LANES, row = tile * ROWS + warp / SHARE, i = least(row, IN - 1);
    float inputs[M];
#pragma unroll
    for (int m = 0; m < M; m++) inputs[m] = x[m * IN + i];
#pragma unroll 1
    for (int first = warp % SHARE * LANES + thread % LANES; first < OUT; first += EACH * STEP) {
        float errors[EACH][M];
        decltype(early(0, 0)) known[EACH];
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const int o = least(first + u * STEP, OUT - 1);
            known[u] = early(i, o);
#pragma unroll
            for (int m = 0; m < M; m++) errors[u][m] = g[m * OUT + o];
        }
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const int o = first + u * STEP;
            if (o >= OUT) break;
            float total = 0;
#pragma unroll
            for (int m = 0; m < M; m++) total += errors[u][m] * inputs[m];
            if (row < IN) end(i, o, total, known[u]);
        }
    }
}
