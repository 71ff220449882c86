/*
 * Smooth activations x * sigmoid(u), sixteen at a time, for CPUs and GPUs: SiLU (Elfwing et al. 2018,
 * arXiv:1702.03118, eq. 5), where u = x; and GELU in its approximation by tanh (Hendrycks and Gimpel 2016,
 * arXiv:1606.08415, section 2), where u = 2 sqrt(2 / pi) (x + 0.044715 x^3), because (1 + tanh(u / 2)) / 2 =
 * sigmoid(u).
 */

/* 1 / (1 + e^-x); relative error < 5e-7 for x > -87, 0 below; NaN stays NaN. e^-|x| cannot overflow. */
LANES_INLINE v16 v16_sigmoid(v16 x)
{
    v16 one = v16_set1(1.0F);
    v16 power = v16_exp_below0(v16_sub(v16_set1(0.0F), v16_abs(x)));
    v16 top = v16_max(v16_keep_gt(one, x, v16_set1(0.0F)), power); /* 1, or e^x for x <= 0 */
    return v16_div(top, v16_add(one, power));
}

/* GELU's u, limited to +-200, where the sigmoid is 0 or 1; and du / dx in *slope, 0 beyond the limit. The
 * limit of x keeps its cube finite. */
LANES_INLINE v16 gelu_gate(v16 x, v16 *slope)
{
    v16 most = v16_set1(20.0F), limited = v16_max(v16_sub(v16_set1(0.0F), most), v16_min(most, x));
    v16 square = v16_mul(limited, limited), scale = v16_set1(1.59576912F);
    *slope = v16_mul(scale, v16_fma(square, v16_set1(3.0F * 0.044715F), v16_set1(1.0F)));
    *slope = v16_keep_gt(*slope, most, v16_abs(x));
    return v16_mul(v16_mul(scale, limited), v16_fma(square, v16_set1(0.044715F), v16_set1(1.0F)));
}

LANES_INLINE v16 gate_forward(v16 x, bool is_gelu)
{
    v16 slope;
    return v16_mul(x, v16_sigmoid(is_gelu ? gelu_gate(x, &slope) : x));
}

/* g times d (x s(u)) / dx = s + x s (1 - s) du / dx. */
LANES_INLINE v16 gate_backward(v16 g, v16 x, bool is_gelu)
{
    v16 slope = v16_set1(1.0F), s = v16_sigmoid(is_gelu ? gelu_gate(x, &slope) : x);
    v16 rest = v16_mul(v16_mul(x, slope), v16_mul(s, v16_sub(v16_set1(1.0F), s)));
    return v16_mul(g, v16_add(s, rest));
}
