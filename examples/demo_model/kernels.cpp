// CPU kernels for training the demo model: each fuses what PyTorch would run as dozens of small passes over memory.
// Single-threaded (train.py runs one worker per core), head dimension 64, called through ctypes by kernels.py.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {
constexpr int D = 64;
constexpr int CHUNK = 32;

struct Head {  // where one value head's inputs lie: row t starts at base + t * stride
    const float *q, *k, *v, *g, *beta;
    int64_t stride, heads;
};

inline float dot(const float *a, const float *b) {
    float s = 0;
    for (int i = 0; i < D; ++i) s += a[i] * b[i];
    return s;
}

// Normalised query (scaled) and key of step t, and the factors used.
inline void unit(const Head &h, int64_t t, float *q, float *k, float &rq, float &rk) {
    const float *x = h.q + t * h.stride, *y = h.k + t * h.stride;
    rq = 1.0f / std::sqrt(dot(x, x) + 1e-6f);
    rk = 1.0f / std::sqrt(dot(y, y) + 1e-6f);
    for (int i = 0; i < D; ++i) q[i] = x[i] * rq * 0.125f;
    for (int i = 0; i < D; ++i) k[i] = y[i] * rk;
}

// One step: S becomes the decayed state; returns prediction error (before beta) in err, then adds the update.
inline void step(float *S, const float *k, const float *v, float e, float beta, float *err, float *decayed) {
    float pred[D] = {0};
    for (int i = 0; i < D; ++i)
        for (int j = 0; j < D; ++j) {
            S[i * D + j] *= e;
            pred[j] += k[i] * S[i * D + j];
        }
    if (decayed) std::memcpy(decayed, S, sizeof(float) * D * D);
    float d[D];
    for (int j = 0; j < D; ++j) err[j] = v[j] - pred[j];
    for (int j = 0; j < D; ++j) d[j] = err[j] * beta;
    for (int i = 0; i < D; ++i)
        for (int j = 0; j < D; ++j) S[i * D + j] += k[i] * d[j];
}
}  // namespace

extern "C" {

// mixed [B, T, (2 * hk + hv) * 64] (q | k | v), g and beta [B, T, hv], out [B, T, hv, 64].
void delta_forward(const float *mixed, const float *g, const float *beta, float *out, int64_t B, int64_t T, int64_t hk, int64_t hv) {
    const int64_t width = (2 * hk + hv) * D;
    alignas(64) float S[D * D], q[D], k[D], err[D];
    for (int64_t b = 0; b < B; ++b)
        for (int64_t h = 0; h < hv; ++h) {
            const float *base = mixed + b * T * width;
            Head head{base + h / (hv / hk) * D, base + (hk + h / (hv / hk)) * D, base + (2 * hk + h) * D, g + b * T * hv + h, beta + b * T * hv + h, width, hv};
            std::memset(S, 0, sizeof S);
            for (int64_t t = 0; t < T; ++t) {
                float rq, rk;
                unit(head, t, q, k, rq, rk);
                step(S, k, head.v + t * width, std::exp(head.g[t * hv]), head.beta[t * hv], err, nullptr);
                float o[D] = {0};
                for (int i = 0; i < D; ++i)
                    for (int j = 0; j < D; ++j) o[j] += q[i] * S[i * D + j];
                std::memcpy(out + ((b * T + t) * hv + h) * D, o, sizeof o);
            }
        }
}

// Gradients; d_mixed must be zeroed by the caller (value heads that share a key head add to it).
void delta_backward(const float *mixed, const float *g, const float *beta, const float *d_out, float *d_mixed, float *d_g, float *d_beta, int64_t B, int64_t T, int64_t hk, int64_t hv) {
    const int64_t width = (2 * hk + hv) * D, chunks = (T + CHUNK - 1) / CHUNK;
    std::vector<float> starts(chunks * D * D), states(CHUNK * D * D), errors(CHUNK * D);
    alignas(64) float S[D * D], dS[D * D], q[D], k[D], scratch[D];
    for (int64_t b = 0; b < B; ++b)
        for (int64_t h = 0; h < hv; ++h) {
            const float *base = mixed + b * T * width;
            float *d_base = d_mixed + b * T * width;
            const int64_t at_q = h / (hv / hk) * D, at_k = (hk + h / (hv / hk)) * D, at_v = (2 * hk + h) * D;
            Head head{base + at_q, base + at_k, base + at_v, g + b * T * hv + h, beta + b * T * hv + h, width, hv};
            float rq, rk;
            std::memset(S, 0, sizeof S);
            for (int64_t t = 0; t < T; ++t) {  // forward again, keeping the state at each chunk's start
                if (t % CHUNK == 0) std::memcpy(&starts[t / CHUNK * D * D], S, sizeof S);
                unit(head, t, q, k, rq, rk);
                step(S, k, head.v + t * width, std::exp(head.g[t * hv]), head.beta[t * hv], scratch, nullptr);
            }
            std::memset(dS, 0, sizeof dS);
            for (int64_t c = chunks - 1; c >= 0; --c) {
                const int64_t from = c * CHUNK, to = from + CHUNK < T ? from + CHUNK : T;
                std::memcpy(S, &starts[c * D * D], sizeof S);
                for (int64_t t = from; t < to; ++t) {
                    unit(head, t, q, k, rq, rk);
                    step(S, k, head.v + t * width, std::exp(head.g[t * hv]), head.beta[t * hv], &errors[(t - from) * D], &states[(t - from) * D * D]);
                }
                for (int64_t t = to - 1; t >= from; --t) {
                    unit(head, t, q, k, rq, rk);
                    const float *P = &states[(t - from) * D * D], *err = &errors[(t - from) * D];
                    const float *go = d_out + ((b * T + t) * hv + h) * D;
                    const float e = std::exp(head.g[t * hv]), be = head.beta[t * hv];
                    float d[D], dq[D], dk[D], dd[D] = {0}, dp[D];
                    for (int j = 0; j < D; ++j) d[j] = err[j] * be;
                    for (int i = 0; i < D; ++i) {
                        float sq = 0, sk = 0;
                        for (int j = 0; j < D; ++j) {
                            const float s = P[i * D + j] + k[i] * d[j];
                            const float x = dS[i * D + j] + q[i] * go[j];
                            dS[i * D + j] = x;
                            sq += s * go[j];
                            sk += x * d[j];
                            dd[j] += k[i] * x;
                        }
                        dq[i] = sq;
                        dk[i] = sk;
                    }
                    float dbeta = 0;
                    float *dv = d_base + at_v + t * width;
                    for (int j = 0; j < D; ++j) {
                        dbeta += dd[j] * err[j];
                        dv[j] = dd[j] * be;
                        dp[j] = -dd[j] * be;
                    }
                    float dg = 0;
                    for (int i = 0; i < D; ++i) {
                        float sk = 0;
                        for (int j = 0; j < D; ++j) {
                            const float x = dS[i * D + j] + k[i] * dp[j];
                            sk += P[i * D + j] * dp[j];
                            dg += x * P[i * D + j];
                            dS[i * D + j] = x * e;
                        }
                        dk[i] += sk;
                    }
                    d_g[(b * T + t) * hv + h] = dg;
                    d_beta[(b * T + t) * hv + h] = dbeta;
                    // Through the normalisation: y = x r, so dx = r (dy - y (y . dy)) (the epsilon is negligible).
                    float *outq = d_base + at_q + t * width, *outk = d_base + at_k + t * width;
                    const float yq = dot(q, dq) * 64.0f, yk = dot(k, dk);  // q carries the scale 1/8
                    for (int i = 0; i < D; ++i) {
                        outq[i] += rq * 0.125f * (dq[i] - q[i] * yq);
                        outk[i] += rk * (dk[i] - k[i] * yk);
                    }
                }
            }
        }
}

// out = x * rsqrt(mean(x^2) + 1e-6) * (1 + w)
void norm_forward(const float *x, const float *w, float *out, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
        float s = 0;
        for (int64_t i = 0; i < n; ++i) s += x[i] * x[i];
        const float k = 1.0f / std::sqrt(s / n + 1e-6f);
        for (int64_t i = 0; i < n; ++i) out[i] = x[i] * k * (1.0f + w[i]);
    }
}

void norm_backward(const float *x, const float *w, const float *d_out, float *d_x, float *d_w, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r, x += n, d_out += n, d_x += n) {
        float s = 0, p = 0;
        for (int64_t i = 0; i < n; ++i) {
            s += x[i] * x[i];
            p += x[i] * d_out[i] * (1.0f + w[i]);
        }
        const float k = 1.0f / std::sqrt(s / n + 1e-6f), c = p * k * k * k / n;
        for (int64_t i = 0; i < n; ++i) {
            d_w[i] += x[i] * k * d_out[i];
            d_x[i] = k * d_out[i] * (1.0f + w[i]) - x[i] * c;
        }
    }
}

// out = x * rsqrt(mean(x^2) + 1e-6) * w * silu(z), rows of 64
void gated_forward(const float *x, const float *z, const float *w, float *out, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r, x += D, z += D, out += D) {
        const float k = 1.0f / std::sqrt(dot(x, x) / D + 1e-6f);
        for (int i = 0; i < D; ++i) out[i] = x[i] * k * w[i] * z[i] / (1.0f + std::exp(-z[i]));
    }
}

void gated_backward(const float *x, const float *z, const float *w, const float *d_out, float *d_x, float *d_z, float *d_w, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r, x += D, z += D, d_out += D, d_x += D, d_z += D) {
        const float k = 1.0f / std::sqrt(dot(x, x) / D + 1e-6f);
        float y[D], p = 0;
        for (int i = 0; i < D; ++i) {
            const float s = 1.0f / (1.0f + std::exp(-z[i])), gate = z[i] * s;
            d_z[i] = d_out[i] * x[i] * k * w[i] * (s + gate * (1.0f - s));
            d_w[i] += d_out[i] * x[i] * k * gate;
            y[i] = d_out[i] * w[i] * gate;
            p += y[i] * x[i];
        }
        const float c = p * k * k * k / D;
        for (int i = 0; i < D; ++i) d_x[i] = k * y[i] - x[i] * c;
    }
}

// Causal depthwise convolution of width 4 and silu; x and out [B, T, C], w [C, 4] given as [4, C].
void conv_forward(const float *x, const float *w, float *out, int64_t B, int64_t T, int64_t C) {
    for (int64_t b = 0; b < B; ++b)
        for (int64_t t = 0; t < T; ++t) {
            float *o = out + (b * T + t) * C;
            const float *now = x + (b * T + t) * C;
            for (int64_t c = 0; c < C; ++c) o[c] = now[c] * w[3 * C + c];
            for (int64_t i = 1; i < 4 && i <= t; ++i)
                for (int64_t c = 0; c < C; ++c) o[c] += now[c - i * C] * w[(3 - i) * C + c];
            for (int64_t c = 0; c < C; ++c) o[c] = o[c] / (1.0f + std::exp(-o[c]));
        }
}

// d_x must be zeroed by the caller.
void conv_backward(const float *x, const float *w, const float *d_out, float *d_x, float *d_w, int64_t B, int64_t T, int64_t C) {
    std::vector<float> pre(C);
    for (int64_t b = 0; b < B; ++b)
        for (int64_t t = 0; t < T; ++t) {
            const float *now = x + (b * T + t) * C, *go = d_out + (b * T + t) * C;
            float *dx = d_x + (b * T + t) * C, *p = pre.data();
            for (int64_t c = 0; c < C; ++c) p[c] = now[c] * w[3 * C + c];
            for (int64_t i = 1; i < 4 && i <= t; ++i)
                for (int64_t c = 0; c < C; ++c) p[c] += now[c - i * C] * w[(3 - i) * C + c];
            for (int64_t c = 0; c < C; ++c) {
                const float s = 1.0f / (1.0f + std::exp(-p[c]));
                p[c] = go[c] * (s + p[c] * s * (1.0f - s));
            }
            for (int64_t i = 0; i < 4 && i <= t; ++i)
                for (int64_t c = 0; c < C; ++c) {
                    d_w[(3 - i) * C + c] += p[c] * now[c - i * C];
                    dx[c - i * C] += p[c] * w[(3 - i) * C + c];
                }
        }
}
}
