extern "C" __global__ void __launch_bounds__(256)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  float* const s0 = (float*)(emmy_dynamic + 0);
  float* const s1 = (float*)(emmy_dynamic + 4352);
  float acc0 = 0.0f;
  float acc1 = 0.0f;
  float acc2 = 0.0f;
  float acc3 = 0.0f;
  const float2 emmy_v1 = *((const float2*)(a + bx / 2 * 2048 + tid / 8 * 64 + tid % 8 * 2));
  const float v0 = emmy_v1.x, v1 = emmy_v1.y;
  s0[tid % 8 * 68 + tid / 8] = v0;
  s0[tid % 8 * 68 + tid / 8 + 34] = v1;
  const float2 emmy_v2 = *((const float2*)(b + tid / 16 * 64 + bx % 2 * 32 + tid % 16 * 2));
  const float v2 = emmy_v2.x, v3 = emmy_v2.y;
  *((float2*)(s1 + tid / 16 * 34 + tid % 16 * 2)) = float2{v2, v3};
  #pragma unroll 1
  for (int step0 = 0; step0 < 4; ++step0) {
    float2 emmy_v3 = {0.0f, 0.0f};
    if (step0 * 16 + 16 < 64) emmy_v3 = *((const float2*)(a + bx / 2 * 2048 + tid / 8 * 64 + step0 * 16 + tid % 8 * 2 + 16));
    const float v4 = emmy_v3.x, v5 = emmy_v3.y;
    float2 emmy_v4 = {0.0f, 0.0f};
    if (step0 * 16 + 16 < 64) emmy_v4 = *((const float2*)(b + step0 * 1024 + tid / 16 * 64 + bx % 2 * 32 + tid % 16 * 2 + 1024));
    const float v6 = emmy_v4.x, v7 = emmy_v4.y;
    __syncthreads();
    #pragma unroll
    for (int k0 = 0; k0 < 16; ++k0) {
      const float2 emmy_v5 = *((const float2*)(s0 + step0 % 2 * 544 + k0 * 34 + tid / 16 * 2));
      const float v8 = emmy_v5.x, v9 = emmy_v5.y;
      const float2 emmy_v6 = *((const float2*)(s1 + step0 % 2 * 544 + k0 * 34 + tid % 16 * 2));
      const float v10 = emmy_v6.x, v11 = emmy_v6.y;
      acc0 = fmaf(v8, v10, acc0);
      acc1 = fmaf(v8, v11, acc1);
      acc2 = fmaf(v9, v10, acc2);
      acc3 = fmaf(v9, v11, acc3);
    }
    s0[(step0 + 1) % 2 * 544 + tid % 8 * 68 + tid / 8] = v4;
    s0[(step0 + 1) % 2 * 544 + tid % 8 * 68 + tid / 8 + 34] = v5;
    *((float2*)(s1 + (step0 + 1) % 2 * 544 + tid / 16 * 34 + tid % 16 * 2)) = float2{v6, v7};
  }
  *((float2*)(out + bx / 2 * 2048 + tid / 16 * 128 + bx % 2 * 32 + tid % 16 * 2)) = float2{acc0, acc1};
  *((float2*)(out + bx / 2 * 2048 + tid / 16 * 128 + bx % 2 * 32 + tid % 16 * 2 + 64)) = float2{acc2, acc3};
}
