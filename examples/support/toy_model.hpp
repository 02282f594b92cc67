// SPDX-License-Identifier: Apache-2.0
//
// A small language model in plain C++: four tokens in, one token out; embedding, residual MLP blocks, head. It stands
// for the kernels of a real trainer: each function gets whole parameters in bf16, computes in f32, and leaves whole
// gradients in bf16.
//
//   embedding   x = tokens of the context, side by side, + positions
//   block       x = x + down(silu(up(norm(x)) + bias))
//   head        loss = cross entropy of softmax(weight norm(x)) and the next token

#pragma once

#include <tide/element/bf16.hpp>
#include <tide/layout/group.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace tide_example::toy {

using tide::bf16;
using tide::index_t;

inline constexpr index_t vocabulary = 48;
inline constexpr index_t context = 4;
inline constexpr index_t embedded = 8;
inline constexpr index_t width = context * embedded;
inline constexpr index_t hidden = 74;
inline constexpr index_t blocks = 4;

inline constexpr auto embedding_group = tide::group(             //
    tide::param<bf16>("tokens.weight", {vocabulary, embedded}),  //
    tide::param<bf16>("positions.weight", {context, embedded}));
inline constexpr auto block_group = tide::group(      //
    tide::param<bf16>("norm.weight", {width}),        //
    tide::param<bf16>("up.weight", {hidden, width}),  //
    tide::param<bf16>("up.bias", {hidden}),           //
    tide::param<bf16>("down.weight", {width, hidden}));
inline constexpr auto head_group = tide::group(  //
    tide::param<bf16>("norm.weight", {width}),   //
    tide::param<bf16>("output.weight", {vocabulary, width}));

/// Random numbers that are the same everywhere.
[[nodiscard]] inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t x = (a ^ 0x9E3779B97F4A7C15ULL) + b * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Where a parameter's training starts: ones for norms, small random numbers for the rest.
[[nodiscard]] inline float start_value(std::uint64_t seed, index_t group, const tide::Parameter& parameter, index_t i) {
  if (parameter.shape.rank == 1) return parameter.name.reads("norm.weight") ? 1.0F : 0.0F;
  const std::uint64_t bits =
      mix(mix(seed, static_cast<std::uint64_t>(group)) + parameter.name.hash(), static_cast<std::uint64_t>(i));
  const float uniform = static_cast<float>(static_cast<std::int64_t>(bits % 2001) - 1000) / 1000.0F;
  return uniform / std::sqrt(static_cast<float>(parameter.shape[1]));
}

/// Samples of one rank in one step: contexts, and the token that follows each by a rule that can be learned.
struct Batch {
  std::vector<std::array<index_t, context>> tokens{};
  std::vector<index_t> next{};

  Batch(std::uint64_t seed, std::uint64_t step, index_t first_sample, index_t samples) {
    for (index_t s = 0; s < samples; ++s) {
      std::uint64_t bits = mix(mix(seed + 17, step), static_cast<std::uint64_t>(first_sample + s));
      std::array<index_t, context>& one = tokens.emplace_back();
      for (index_t& token : one) {
        token = static_cast<index_t>(bits % static_cast<std::uint64_t>(vocabulary));
        bits /= static_cast<std::uint64_t>(vocabulary);
      }
      next.push_back((one[context - 1] + (one[0] % 2 == 0 ? 1 : 5)) % vocabulary);
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return next.size(); }
};

using Vector = std::array<float, width>;

// Sums of a whole gradient in f32, narrowed at the end.
class Accumulated {
 public:
  explicit Accumulated(std::span<bf16> target) : target_(target), sums_(target.size(), 0.0F) {}
  ~Accumulated() {
    std::transform(sums_.begin(), sums_.end(), target_.begin(), [](float sum) { return bf16(sum); });
  }
  Accumulated(const Accumulated&) = delete;
  Accumulated& operator=(const Accumulated&) = delete;
  float& operator[](index_t i) noexcept { return sums_[static_cast<std::size_t>(i)]; }

 private:
  std::span<bf16> target_;
  std::vector<float> sums_;
};

[[nodiscard]] inline float at(std::span<const bf16> values, index_t i) {
  return static_cast<float>(values[static_cast<std::size_t>(i)]);
}

/// The activations of one rank, and the gradient with respect to them, from group to group.
class Activations {
 public:
  explicit Activations(std::size_t samples) : inputs_(blocks + 1, std::vector<Vector>(samples)), d_(samples) {}

  void embed(const Batch& batch, std::span<const bf16> tokens, std::span<const bf16> positions) {
    for (std::size_t s = 0; s < batch.size(); ++s) {
      for (index_t c = 0; c < context; ++c) {
        for (index_t k = 0; k < embedded; ++k) {
          const index_t token = batch.tokens[s][static_cast<std::size_t>(c)];
          inputs_[0][s][static_cast<std::size_t>(c * embedded + k)] =
              at(tokens, token * embedded + k) + at(positions, c * embedded + k);
        }
      }
    }
  }

  void embed_back(const Batch& batch, std::span<bf16> tokens, std::span<bf16> positions) {
    Accumulated d_tokens(tokens);
    Accumulated d_positions(positions);
    for (std::size_t s = 0; s < batch.size(); ++s) {
      for (index_t c = 0; c < context; ++c) {
        for (index_t k = 0; k < embedded; ++k) {
          const float d = d_[s][static_cast<std::size_t>(c * embedded + k)];
          d_tokens[batch.tokens[s][static_cast<std::size_t>(c)] * embedded + k] += d;
          d_positions[c * embedded + k] += d;
        }
      }
    }
  }

  void block(index_t number, std::span<const bf16> norm, std::span<const bf16> up, std::span<const bf16> bias,
             std::span<const bf16> down) {
    for (std::size_t s = 0; s < d_.size(); ++s) {
      const Vector& x = inputs_[static_cast<std::size_t>(number)][s];
      Vector& y = inputs_[static_cast<std::size_t>(number) + 1][s];
      const Inside inside(x, norm, up, bias);
      y = x;
      for (index_t i = 0; i < width; ++i) {
        float sum = 0;
        for (index_t h = 0; h < hidden; ++h) sum += at(down, i * hidden + h) * inside.active(h);
        y[static_cast<std::size_t>(i)] += sum;
      }
    }
  }

  void block_back(index_t number, std::span<const bf16> norm, std::span<const bf16> up, std::span<const bf16> bias,
                  std::span<const bf16> down, std::span<bf16> g_norm, std::span<bf16> g_up, std::span<bf16> g_bias,
                  std::span<bf16> g_down) {
    Accumulated d_norm(g_norm);
    Accumulated d_up(g_up);
    Accumulated d_bias(g_bias);
    Accumulated d_down(g_down);
    for (std::size_t s = 0; s < d_.size(); ++s) {
      const Vector& x = inputs_[static_cast<std::size_t>(number)][s];
      const Inside inside(x, norm, up, bias);
      Vector d_normed{};
      for (index_t h = 0; h < hidden; ++h) {
        float d_active = 0;
        for (index_t i = 0; i < width; ++i) {
          const float d = d_[s][static_cast<std::size_t>(i)];
          d_active += d * at(down, i * hidden + h);
          d_down[i * hidden + h] += d * inside.active(h);
        }
        const float d_before = d_active * inside.slope(h);
        d_bias[h] += d_before;
        for (index_t i = 0; i < width; ++i) {
          d_up[h * width + i] += d_before * inside.normed[static_cast<std::size_t>(i)];
          d_normed[static_cast<std::size_t>(i)] += d_before * at(up, h * width + i);
        }
      }
      norm_back(x, norm, d_normed, d_norm, d_[s]);
    }
  }

  /// The sum of the samples' losses over the size of the global batch; leaves the gradients of the head, too.
  [[nodiscard]] float head(const Batch& batch, index_t global_batch, std::span<const bf16> norm,
                           std::span<const bf16> output) {
    float loss = 0;
    logits_.assign(batch.size() * static_cast<std::size_t>(vocabulary), 0.0F);
    for (std::size_t s = 0; s < batch.size(); ++s) {
      const Vector normed = normalized(inputs_.back()[s], norm);
      float* logits = &logits_[s * static_cast<std::size_t>(vocabulary)];
      float largest = -INFINITY;
      for (index_t v = 0; v < vocabulary; ++v) {
        for (index_t i = 0; i < width; ++i)
          logits[v] += at(output, v * width + i) * normed[static_cast<std::size_t>(i)];
        largest = std::max(largest, logits[v]);
      }
      float sum = 0;
      for (index_t v = 0; v < vocabulary; ++v) sum += std::exp(logits[v] - largest);
      loss += (std::log(sum) + largest - logits[batch.next[s]]) / static_cast<float>(global_batch);
      for (index_t v = 0; v < vocabulary; ++v) {  // from here on: the gradients with respect to the logits
        const float wanted = v == batch.next[s] ? 1.0F : 0.0F;
        logits[v] = (std::exp(logits[v] - largest) / sum - wanted) / static_cast<float>(global_batch);
      }
    }
    return loss;
  }

  void head_back(std::span<const bf16> norm, std::span<const bf16> output, std::span<bf16> g_norm,
                 std::span<bf16> g_output) {
    Accumulated d_norm(g_norm);
    Accumulated d_output(g_output);
    for (std::size_t s = 0; s < d_.size(); ++s) {
      const Vector& x = inputs_.back()[s];
      const Vector normed = normalized(x, norm);
      const float* d_logits = &logits_[s * static_cast<std::size_t>(vocabulary)];
      Vector d_normed{};
      for (index_t v = 0; v < vocabulary; ++v) {
        for (index_t i = 0; i < width; ++i) {
          d_output[v * width + i] += d_logits[v] * normed[static_cast<std::size_t>(i)];
          d_normed[static_cast<std::size_t>(i)] += d_logits[v] * at(output, v * width + i);
        }
      }
      d_[s] = {};
      norm_back(x, norm, d_normed, d_norm, d_[s]);
    }
  }

 private:
  [[nodiscard]] static float inverse_rms(const Vector& x) {
    float sum = 0;
    for (const float value : x) sum += value * value;
    return 1.0F / std::sqrt(sum / static_cast<float>(width) + 1e-5F);
  }

  [[nodiscard]] static Vector normalized(const Vector& x, std::span<const bf16> norm) {
    const float r = inverse_rms(x);
    Vector normed{};
    for (index_t i = 0; i < width; ++i) {
      normed[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(i)] * r * at(norm, i);
    }
    return normed;
  }

  // Adds to d_x what comes through the norm.
  static void norm_back(const Vector& x, std::span<const bf16> norm, const Vector& d_normed, Accumulated& d_norm,
                        Vector& d_x) {
    const float r = inverse_rms(x);
    float dot = 0;
    for (index_t i = 0; i < width; ++i) {
      const auto k = static_cast<std::size_t>(i);
      d_norm[i] += d_normed[k] * x[k] * r;
      dot += d_normed[k] * at(norm, i) * x[k];
    }
    const float back = dot * r * r * r / static_cast<float>(width);
    for (index_t i = 0; i < width; ++i) {
      const auto k = static_cast<std::size_t>(i);
      d_x[k] += d_normed[k] * at(norm, i) * r - x[k] * back;
    }
  }

  // What a block computes on the way, once more in its backward.
  struct Inside {
    Vector normed;
    std::array<float, hidden> before{};

    Inside(const Vector& x, std::span<const bf16> norm, std::span<const bf16> up, std::span<const bf16> bias)
        : normed(normalized(x, norm)) {
      for (index_t h = 0; h < hidden; ++h) {
        float sum = at(bias, h);
        for (index_t i = 0; i < width; ++i) sum += at(up, h * width + i) * normed[static_cast<std::size_t>(i)];
        before[static_cast<std::size_t>(h)] = sum;
      }
    }

    [[nodiscard]] float sigmoid(index_t h) const {
      return 1.0F / (1.0F + std::exp(-before[static_cast<std::size_t>(h)]));
    }
    [[nodiscard]] float active(index_t h) const { return before[static_cast<std::size_t>(h)] * sigmoid(h); }
    [[nodiscard]] float slope(index_t h) const {
      const float s = sigmoid(h);
      return s * (1 + before[static_cast<std::size_t>(h)] * (1 - s));
    }
  };

  std::vector<std::vector<Vector>> inputs_;  // of each block, and of the head; by sample
  std::vector<Vector> d_;                    // by sample
  std::vector<float> logits_;
};

/// Adam on some rows of a parameter, element by element: what a shard gets is what the whole would get.
struct Adam {
  float rate = 0.01F;
  float first = 0.9F;
  float second = 0.99F;

  void update(int step, std::span<float> weights, std::span<const float> gradient, std::span<float> mean,
              std::span<float> square) const {
    const auto power = static_cast<float>(step + 1);
    const float mean_scale = 1.0F / (1.0F - std::pow(first, power));
    const float square_scale = 1.0F / (1.0F - std::pow(second, power));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      mean[i] = first * mean[i] + (1 - first) * gradient[i];
      square[i] = second * square[i] + (1 - second) * gradient[i] * gradient[i];
      weights[i] -= rate * (mean[i] * mean_scale) / (std::sqrt(square[i] * square_scale) + 1e-8F);
    }
  }
};

}  // namespace tide_example::toy
