extern "C" __global__ void __launch_bounds__(64)
add_bias(const float* __restrict__ x, const float* __restrict__ b, float* __restrict__ out) {
  const int bx = blockIdx.x;
  const int tid = threadIdx.x;
  const float4 emmy_v1 = *((const float4*)(x + bx / 2 * 512 + tid / 32 * 256 + bx % 2 * 128 + tid % 32 * 4));
  const float v0 = emmy_v1.x, v1 = emmy_v1.y, v2 = emmy_v1.z, v3 = emmy_v1.w;
  const float4 emmy_v2 = *((const float4*)(b + bx % 2 * 128 + tid % 32 * 4));
  const float v4 = emmy_v2.x, v5 = emmy_v2.y, v6 = emmy_v2.z, v7 = emmy_v2.w;
  const float v8 = v0 + v4;
  const float v9 = v1 + v5;
  const float v10 = v2 + v6;
  const float v11 = v3 + v7;
  *((float4*)(out + bx / 2 * 512 + tid / 32 * 256 + bx % 2 * 128 + tid % 32 * 4)) = float4{v8, v9, v10, v11};
}
