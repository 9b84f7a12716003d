extern "C" __global__ void __launch_bounds__(64)
column_sum(const float* __restrict__ x, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  float* const s0 = (float*)(emmy_dynamic + 0);
  float acc0 = 0.0f;
  #pragma unroll 1
  for (int step0 = 0; step0 < 16; ++step0) {
    const float v0 = x[step0 * 256 + tid / 32 * 64 + bx * 32 + tid % 32];
    const float v1 = x[step0 * 256 + tid / 32 * 64 + bx * 32 + tid % 32 + 128];
    const float v2 = v0 + v1;
    const float v3 = acc0 + v2;
    acc0 = v3;
  }
  s0[tid % 32 * 2 + tid / 32] = acc0;
  __syncthreads();
  const float2 emmy_v1 = *((const float2*)(s0 + tid % 32 * 2));
  const float v4 = emmy_v1.x, v5 = emmy_v1.y;
  const float v6 = v4 + v5;
  if (tid / 32 == 0) out[bx * 32 + tid % 32] = v6;
}
