extern "C" __global__ void __launch_bounds__(256)
transpose(const float* __restrict__ x, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  float* const s0 = (float*)(emmy_dynamic + 0);
  const float v0 = x[bx % 2 * 2048 + tid / 8 * 64 + bx / 2 * 8 + tid % 8];
  s0[tid % 8 * 33 + tid / 8] = v0;
  __syncthreads();
  const float v1 = s0[tid / 32 * 33 + tid % 32];
  const float v2 = -v1;
  out[bx / 2 * 512 + tid / 32 * 64 + bx % 2 * 32 + tid % 32] = v2;
}
