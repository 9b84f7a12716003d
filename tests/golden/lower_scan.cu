extern "C" __global__ void __launch_bounds__(64)
cumsum(const float* __restrict__ x, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  float acc0 = 0.0f;
  const int n0 = tid % 16;
  #pragma unroll 1
  for (int step0 = 0; step0 < 2; ++step0) {
    const float2 emmy_v1 = *((const float2*)(x + bx * 256 + tid / 16 * 64 + step0 * 32 + tid % 16 * 2));
    const float v0 = emmy_v1.x, v1 = emmy_v1.y;
    const float v2 = v0 + v1;
    const float v3 = __shfl_up_sync(0xffffffffu, v2, 1);
    const bool v4 = n0 >= 1;
    const float v5 = v3 + v2;
    const float v6 = v4 ? v5 : v2;
    const float v7 = __shfl_up_sync(0xffffffffu, v6, 2);
    const bool v8 = n0 >= 2;
    const float v9 = v7 + v6;
    const float v10 = v8 ? v9 : v6;
    const float v11 = __shfl_up_sync(0xffffffffu, v10, 4);
    const bool v12 = n0 >= 4;
    const float v13 = v11 + v10;
    const float v14 = v12 ? v13 : v10;
    const float v15 = __shfl_up_sync(0xffffffffu, v14, 8);
    const bool v16 = n0 >= 8;
    const float v17 = v15 + v14;
    const float v18 = v16 ? v17 : v14;
    const bool v19 = n0 >= 1;
    const float v20 = __shfl_up_sync(0xffffffffu, v18, 1);
    const float v21 = v19 ? v20 : 0.0f;
    const float v22 = __shfl_sync(0xffffffffu, v18, tid / 16 % 2 * 16 + 15);
    const float v23 = acc0 + v21;
    const float v24 = v23 + v0;
    const float v25 = v23 + v2;
    const float v26 = acc0 + v22;
    acc0 = v26;
    *((float2*)(out + bx * 256 + tid / 16 * 64 + step0 * 32 + tid % 16 * 2)) = float2{v24, v25};
  }
}
