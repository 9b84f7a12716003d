extern "C" __global__ void __launch_bounds__(64)
gather(const long long* __restrict__ index, const float* __restrict__ table, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  const long long v0 = index[bx * 8 + tid / 8];
  const float4 emmy_v1 = *((const float4*)(table + (long long)v0 * 32ll + (long long)tid % 8ll * 4ll));
  const float v1 = emmy_v1.x, v2 = emmy_v1.y, v3 = emmy_v1.z, v4 = emmy_v1.w;
  *((float4*)(out + bx * 256 + tid * 4)) = float4{v1, v2, v3, v4};
}
