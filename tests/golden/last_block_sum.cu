extern "C" __global__ void __launch_bounds__(128)
last_block_sum(const float* __restrict__ x, float* __restrict__ o, float* __restrict__ partial, int* __restrict__ count) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  extern __shared__ __align__(16) unsigned char emmy_dynamic[];
  float* const part = (float*)(emmy_dynamic + 0);
  int* const arrived = (int*)(emmy_dynamic + 16);
  float total = 0.0f;
  #pragma unroll 1
  for (int k0 = 0; k0 < 512; k0 += 128) {
    const float x0 = bx * 512 + k0 + tid < 3000 ? x[bx * 512 + k0 + tid] : 0.0f;
    total = total + x0;
  }
  const float lane16 = __shfl_xor_sync(0xffffffffu, total, 16);
  total = total + lane16;
  const float lane8 = __shfl_xor_sync(0xffffffffu, total, 8);
  total = total + lane8;
  const float lane4 = __shfl_xor_sync(0xffffffffu, total, 4);
  total = total + lane4;
  const float lane2 = __shfl_xor_sync(0xffffffffu, total, 2);
  total = total + lane2;
  const float lane1 = __shfl_xor_sync(0xffffffffu, total, 1);
  total = total + lane1;
  if (tid % 32 == 0) part[tid / 32] = total;
  __syncthreads();
  if (tid < 32) {
    const float across = tid < 4 ? part[tid] : 0.0f;
    total = across;
    const float warp16 = __shfl_xor_sync(0xffffffffu, total, 16);
    total = total + warp16;
    const float warp8 = __shfl_xor_sync(0xffffffffu, total, 8);
    total = total + warp8;
    const float warp4 = __shfl_xor_sync(0xffffffffu, total, 4);
    total = total + warp4;
    const float warp2 = __shfl_xor_sync(0xffffffffu, total, 2);
    total = total + warp2;
    const float warp1 = __shfl_xor_sync(0xffffffffu, total, 1);
    total = total + warp1;
  }
  if (tid == 0) {
    partial[bx] = total;
    __threadfence();
    const int seen = (int)atomicAdd((unsigned*)(count), (unsigned)1);
    arrived[0] = seen;
  }
  __syncthreads();
  const int before = arrived[0];
  if ((before == 5) && (tid == 0)) {
    __threadfence();
    float sum = 0.0f;
    #pragma unroll 1
    for (int b = 0; b < 6; ++b) {
      const float p = __ldcg(partial + b);
      sum = sum + p;
    }
    o[0] = sum;
    count[0] = 0;
  }
}
