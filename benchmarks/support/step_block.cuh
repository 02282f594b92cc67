// SPDX-License-Identifier: Apache-2.0
//
// BlockCompute: what a GPU computes for blocks of Llama-3.1-70B, forward and backward: their matrix products, bf16 with
// f32 sums, on cuBLAS.
//
//   h = x + input_norm         q, k, v = h Q', h K', h V'         x += attention(q, k, v) O'
//   h = x + attention_norm     m = h G' + h U' / 2                x += m D'
//
// Attention is two batched products, q k' / sqrt(128 tokens) and that times v, of every token with every token; its
// scores are made again in the backward, for an eighth of the heads at a time. What is no product in Llama, norms'
// divisions, SiLU, softmax, is left out: the vectors of the norms are added. The loss is |x|^2 / 2 of what comes out
// of the last block, so that every gradient depends on every parameter, and no two parameters have the same one.

#pragma once

#include "gemm.cuh"
#include "layout_kernels.cuh"

#include <tide/models/llama3_1.hpp>

#include <array>
#include <vector>

namespace tide_benchmark {

using Bf16 = __nv_bfloat16;

/// The parameters of a block, in the order of `models::llama3_1_70b::block`.
enum BlockParameter : std::size_t { query, key, value, output, gate, up, down, input_norm, attention_norm };
inline constexpr std::size_t block_parameters = 9;

static_assert([] {
  const tide::GroupView block = tide::models::llama3_1_70b::block.view();
  const auto reads = [&](BlockParameter p, std::string_view name) { return block.parameters[p].name.reads(name); };
  return block.parameters.size() == block_parameters && reads(query, "self_attn.q_proj.weight") &&
         reads(key, "self_attn.k_proj.weight") && reads(value, "self_attn.v_proj.weight") &&
         reads(output, "self_attn.o_proj.weight") && reads(gate, "mlp.gate_proj.weight") &&
         reads(up, "mlp.up_proj.weight") && reads(down, "mlp.down_proj.weight") &&
         reads(input_norm, "input_layernorm.weight") && reads(attention_norm, "post_attention_layernorm.weight");
}());

using BlockWeights = std::array<const Bf16*, block_parameters>;
using BlockGradients = std::array<Bf16*, block_parameters>;

/// Parameters of a block that are one group, in its order.
using BlockPart = std::vector<BlockParameter>;
[[nodiscard]] inline BlockPart whole_block() {
  return {query, key, value, output, gate, up, down, input_norm, attention_norm};
}
[[nodiscard]] inline BlockPart attention_part() { return {query, key, value, output, input_norm}; }
[[nodiscard]] inline BlockPart feed_part() { return {gate, up, down, attention_norm}; }

/// Spans of a group that is a part of a block, with the numbers that their parameters have in the block.
[[nodiscard]] inline std::vector<Span> in_block(const BlockPart& part, std::vector<Span> spans) {
  for (Span& span : spans) span.parameter = static_cast<int>(part[static_cast<std::size_t>(span.parameter)]);
  return spans;
}

/// The pointers to the parameters of a part of a block in a dense buffer; null for the others.
template <class Pointer>
[[nodiscard]] std::array<Pointer, block_parameters> block_at(const tide::LayoutView& layout, tide::Buffer buffer,
                                                             std::byte* memory, const BlockPart& part = whole_block()) {
  std::array<Pointer, block_parameters> all{};
  for (const Span& span : in_block(part, whole_spans(layout, buffer))) {
    all[static_cast<std::size_t>(span.parameter)] = reinterpret_cast<Pointer>(memory + span.offset);
  }
  return all;
}

/// The extents of a block: those of Llama-3.1-70B, times width / 8192.
struct BlockShape {
  index_t tokens = 8192;
  index_t width = 8192;  ///< a multiple of 1024

  static constexpr index_t head = 128;
  static constexpr index_t heads_of_key = 8;  ///< heads that share keys and values
  [[nodiscard]] constexpr index_t keys() const noexcept { return width / heads_of_key; }
  [[nodiscard]] constexpr index_t key_heads() const noexcept { return keys() / head; }
  [[nodiscard]] constexpr index_t feed_forward() const noexcept { return width / 2 * 7; }

  /// Elements of a parameter.
  [[nodiscard]] constexpr index_t elements(std::size_t parameter) const noexcept {
    switch (parameter) {
      case query:
      case output:
        return width * width;
      case key:
      case value:
        return keys() * width;
      case gate:
      case up:
      case down:
        return feed_forward() * width;
      default:
        return width;
    }
  }
  /// Floating-point operations of the products of a block, forward and backward.
  [[nodiscard]] constexpr double operations() const noexcept {
    double weights = 0;
    for (std::size_t p = query; p <= down; ++p) weights += static_cast<double>(elements(p));
    const auto scores = static_cast<double>(tokens * tokens * width);
    return 6 * static_cast<double>(tokens) * weights + 14 * scores;  // two products forward, five backward
  }
};

static __global__ void fill_even(Bf16* to, Source source, int parameter, std::int64_t elements, float largest) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    to[i] = __float2bfloat16_rn(even_number(source, parameter, i, largest));
  }
}

static __global__ void fill_ones(Bf16* to, std::int64_t elements) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < elements) to[i] = __float2bfloat16_rn(1.0F);
}

// sums[i] = a[i] + b[i % period], four at a time.
static __global__ void __launch_bounds__(256)
    add_quads(const Quad<Bf16>* a, const Quad<Bf16>* b, Quad<Bf16>* sums, std::int64_t quads, std::int64_t period) {
  const std::int64_t q = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (q >= quads) return;
  const Quad<Bf16> left = a[q];
  const Quad<Bf16> right = b[q % period];
  Quad<Bf16> sum;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    sum.value[k] = __float2bfloat16_rn(__bfloat162float(left.value[k]) + __bfloat162float(right.value[k]));
  }
  sums[q] = sum;
}

/// A matrix of bf16 numbers row by row, or some of them of one shape, `stride` elements apart.
struct Matrix {
  Bf16* data;
  index_t rows;
  index_t columns;
  index_t pitch;
  index_t stride = 0;
};
/// One that is only read, as it lies or transposed.
struct Operand {
  const Bf16* data;
  index_t rows;
  index_t columns;
  index_t pitch;
  index_t stride = 0;
  bool transposed = false;

  Operand(const Bf16* memory, index_t row_count, index_t column_count)
      : data(memory), rows(row_count), columns(column_count), pitch(column_count) {}
  Operand(const Matrix& matrix)  // NOLINT: what is written can be read
      : data(matrix.data), rows(matrix.rows), columns(matrix.columns), pitch(matrix.pitch), stride(matrix.stride) {}

  [[nodiscard]] Operand turned() const {
    Operand other = *this;
    other.transposed = !transposed;
    return other;
  }
};

/// Products on one stream of the current device, in memory that stays the same.
class Products {
 public:
  explicit Products(cudaStream_t stream) {
    must(cublasSetStream(blas_.get(), stream), "cublasSetStream");
    must(cublasSetWorkspace(blas_.get(), workspace_.as<>(), static_cast<std::size_t>(workspace_.bytes())),
         "cublasSetWorkspace");
  }

  /// c = factor a b, or c + that where `adds`, for each of `batch`.
  void multiply(const Operand& a, const Operand& b, const Matrix& c, bool adds = false, float factor = 1,
                index_t batch = 1) const {
    const float beta = adds ? 1 : 0;
    const auto narrow = [](index_t number) { return static_cast<int>(number); };
    // To cuBLAS, which reads columns, every matrix here is its transpose: c' = b' a'.
    must(cublasGemmStridedBatchedEx(
             blas_.get(), b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
             narrow(c.columns), narrow(c.rows), narrow(a.transposed ? a.rows : a.columns), &factor, b.data, CUDA_R_16BF,
             narrow(b.pitch), b.stride, a.data, CUDA_R_16BF, narrow(a.pitch), a.stride, &beta, c.data, CUDA_R_16BF,
             narrow(c.pitch), c.stride, narrow(batch), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
         "cublasGemmStridedBatchedEx");
  }

 private:
  Blas blas_;
  DeviceMemory workspace_{std::int64_t{32} << 20};
};

/// Activations of some blocks on the current device, and what a backward needs. Everything is enqueued on one stream;
/// nothing is allocated after the constructor.
class BlockCompute {
 public:
  /// @param inputs  sets of input numbers to choose from: one for each rank
  BlockCompute(const BlockShape& shape, index_t layers, int inputs, cudaStream_t stream)
      : shape_(shape), stream_(stream), products_(stream) {
    for (index_t i = 0; i < layers; ++i) layers_.emplace_back(shape);
    for (int rank = 0; rank < inputs; ++rank) {
      inputs_.push_back(numbers(shape.tokens * shape.width));
      fill_even<<<grid_for(shape.tokens * shape.width), 256, 0, stream>>>(
          inputs_.back().as<Bf16>(), {Content::operand, rank, 0}, 0, shape.tokens * shape.width, 1.7F);
      must_launch("fill_even");
    }
    fill_ones<<<static_cast<unsigned>((shape.tokens + 255) / 256), 256, 0, stream>>>(ones_.as<Bf16>(), shape.tokens);
    must_launch("fill_ones");
  }

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
  [[nodiscard]] const BlockShape& shape() const noexcept { return shape_; }
  [[nodiscard]] index_t layers() const noexcept { return static_cast<index_t>(layers_.size()); }
  /// Whether a backward first spoils the memory of its gradients.
  void spoil(bool yes) noexcept { spoils_ = yes; }

  /// The input of the first block: that of a rank.
  void begin(int rank) const {
    const DeviceMemory& input = inputs_[static_cast<std::size_t>(rank)];
    must(cudaMemcpyAsync(x_.as<>(), input.as<>(), static_cast<std::size_t>(input.bytes()), cudaMemcpyDeviceToDevice,
                         stream_),
         "cudaMemcpyAsync");
  }

  void forward(index_t number, const BlockWeights& weights) const {
    forward_attention(number, weights);
    forward_feed(number, weights);
  }
  void forward_attention(index_t number, const BlockWeights& weights) const {
    const Layer& layer = layers_[static_cast<std::size_t>(number)];
    const auto [tokens, width] = shape_;
    const index_t keys = shape_.keys();
    const Matrix x = matrix(x_, tokens, width);
    const Matrix first = matrix(layer.first, tokens, width);
    add_row(x, weights[input_norm], first);
    multiply(first, Operand(weights[query], width, width).turned(), matrix(layer.query, tokens, width));
    multiply(first, Operand(weights[key], keys, width).turned(), matrix(layer.key, tokens, keys));
    multiply(first, Operand(weights[value], keys, width).turned(), matrix(layer.value, tokens, keys));
    for (index_t j = 0; j < BlockShape::heads_of_key; ++j) {
      batched(heads(layer.query, j), keys_of(layer.key).turned(), scores(scores_), false, score_factor());
      batched(scores(scores_), keys_of(layer.value), heads(layer.mixed, j));
    }
    multiply(matrix(layer.mixed, tokens, width), Operand(weights[output], width, width).turned(), x, true);
  }
  void forward_feed(index_t number, const BlockWeights& weights) const {
    const Layer& layer = layers_[static_cast<std::size_t>(number)];
    const auto [tokens, width] = shape_;
    const index_t wide = shape_.feed_forward();
    const Matrix x = matrix(x_, tokens, width);
    const Matrix second = matrix(layer.second, tokens, width);
    const Matrix middle = matrix(layer.middle, tokens, wide);
    add_row(x, weights[attention_norm], second);
    multiply(second, Operand(weights[gate], wide, width).turned(), middle);
    multiply(second, Operand(weights[up], wide, width).turned(), middle, true, up_factor);
    multiply(middle, Operand(weights[down], width, wide).turned(), x, true);
  }

  /// After the forward of the last block, whose output is the gradient with respect to it, and then of the one before.
  void backward(index_t number, const BlockWeights& weights, const BlockGradients& gradients) const {
    backward_feed(number, weights, gradients);
    backward_attention(number, weights, gradients);
  }
  void backward_feed(index_t number, const BlockWeights& weights, const BlockGradients& gradients) const {
    if (spoils_) spoil(gradients, feed_part());
    const Layer& layer = layers_[static_cast<std::size_t>(number)];
    const auto [tokens, width] = shape_;
    const index_t wide = shape_.feed_forward();
    const Matrix d = matrix(x_, tokens, width);
    const Matrix d_inner = matrix(d_inner_, tokens, width);
    const Matrix d_middle = matrix(d_middle_, tokens, wide);
    const Matrix second = matrix(layer.second, tokens, width);
    multiply(turned(d), matrix(layer.middle, tokens, wide), gradient(gradients, down, width, wide));
    multiply(d, Operand(weights[down], width, wide), d_middle);
    multiply(turned(d_middle), second, gradient(gradients, gate, wide, width));
    multiply(turned(d_middle), second, gradient(gradients, up, wide, width), false, up_factor);
    multiply(d_middle, Operand(weights[gate], wide, width), d_inner);
    multiply(d_middle, Operand(weights[up], wide, width), d_inner, true, up_factor);
    add_up_rows(d_inner, gradient(gradients, attention_norm, 1, width));
    add(d, d_inner);
  }
  void backward_attention(index_t number, const BlockWeights& weights, const BlockGradients& gradients) const {
    if (spoils_) spoil(gradients, attention_part());
    const Layer& layer = layers_[static_cast<std::size_t>(number)];
    const auto [tokens, width] = shape_;
    const index_t keys = shape_.keys();
    const Matrix d = matrix(x_, tokens, width);
    const Matrix d_inner = matrix(d_inner_, tokens, width);
    const Matrix first = matrix(layer.first, tokens, width);
    multiply(turned(d), matrix(layer.mixed, tokens, width), gradient(gradients, output, width, width));
    multiply(d, Operand(weights[output], width, width), d_inner);  // with respect to what attention gives
    for (index_t j = 0; j < BlockShape::heads_of_key; ++j) {
      batched(heads(layer.query, j), keys_of(layer.key).turned(), scores(scores_), false, score_factor());
      batched(turned(scores(scores_)), heads(d_inner_, j), key_matrix(d_value_), j > 0);
      batched(heads(d_inner_, j), keys_of(layer.value).turned(), scores(d_scores_));
      batched(scores(d_scores_), keys_of(layer.key), heads(d_query_, j), false, score_factor());
      batched(turned(scores(d_scores_)), heads(layer.query, j), key_matrix(d_key_), j > 0, score_factor());
    }
    const Matrix d_query = matrix(d_query_, tokens, width);
    const Matrix d_key = matrix(d_key_, tokens, keys);
    const Matrix d_value = matrix(d_value_, tokens, keys);
    multiply(turned(d_query), first, gradient(gradients, query, width, width));
    multiply(turned(d_key), first, gradient(gradients, key, keys, width));
    multiply(turned(d_value), first, gradient(gradients, value, keys, width));
    multiply(d_query, Operand(weights[query], width, width), d_inner);
    multiply(d_key, Operand(weights[key], keys, width), d_inner, true);
    multiply(d_value, Operand(weights[value], keys, width), d_inner, true);
    add_up_rows(d_inner, gradient(gradients, input_norm, 1, width));
    add(d, d_inner);
  }

 private:
  // cuBLAS multiplies with it for nothing. Without it gate and up would have one gradient.
  static constexpr float up_factor = 0.5F;

  // What a backward needs of a forward.
  struct Layer {
    explicit Layer(const BlockShape& shape)
        : first(numbers(shape.tokens * shape.width)),
          query(numbers(shape.tokens * shape.width)),
          key(numbers(shape.tokens * shape.keys())),
          value(numbers(shape.tokens * shape.keys())),
          mixed(numbers(shape.tokens * shape.width)),
          second(numbers(shape.tokens * shape.width)),
          middle(numbers(shape.tokens * shape.feed_forward())) {}

    DeviceMemory first;  // the inputs of the products: of q, k and v
    DeviceMemory query;
    DeviceMemory key;
    DeviceMemory value;
    DeviceMemory mixed;   // of the output projection
    DeviceMemory second;  // of gate and up
    DeviceMemory middle;  // of down
  };

  [[nodiscard]] static DeviceMemory numbers(index_t count) {
    return DeviceMemory(count * static_cast<index_t>(sizeof(Bf16)));
  }
  [[nodiscard]] static Matrix matrix(const DeviceMemory& memory, index_t rows, index_t columns) {
    return {memory.as<Bf16>(), rows, columns, columns};
  }
  [[nodiscard]] static Operand turned(const Matrix& matrix) { return Operand(matrix).turned(); }

  // Head j of those that share keys, for each of the key heads.
  [[nodiscard]] Matrix heads(const DeviceMemory& memory, index_t j) const {
    return {memory.as<Bf16>() + j * BlockShape::head, shape_.tokens, BlockShape::head, shape_.width,
            BlockShape::heads_of_key * BlockShape::head};
  }
  [[nodiscard]] Matrix key_matrix(const DeviceMemory& memory) const {
    return {memory.as<Bf16>(), shape_.tokens, BlockShape::head, shape_.keys(), BlockShape::head};
  }
  [[nodiscard]] Operand keys_of(const DeviceMemory& memory) const { return key_matrix(memory); }
  [[nodiscard]] Matrix scores(const DeviceMemory& memory) const {
    return {memory.as<Bf16>(), shape_.tokens, shape_.tokens, shape_.tokens, shape_.tokens * shape_.tokens};
  }
  [[nodiscard]] float score_factor() const {
    return 1.0F / std::sqrt(static_cast<float>(BlockShape::head) * static_cast<float>(shape_.tokens));
  }

  [[nodiscard]] static Matrix gradient(const BlockGradients& all, BlockParameter p, index_t rows, index_t columns) {
    return {all[p], rows, columns, columns};
  }

  void multiply(const Operand& a, const Operand& b, const Matrix& c, bool adds = false, float factor = 1) const {
    products_.multiply(a, b, c, adds, factor);
  }
  void batched(const Operand& a, const Operand& b, const Matrix& c, bool adds = false, float factor = 1) const {
    products_.multiply(a, b, c, adds, factor, shape_.key_heads());
  }

  void add_quads_of(const Bf16* a, const Bf16* b, Bf16* sums, index_t count, index_t period) const {
    const auto quads = [](auto* numbers) {
      using T =
          std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(numbers)>>, const Quad<Bf16>, Quad<Bf16>>;
      return reinterpret_cast<T*>(numbers);
    };
    add_quads<<<static_cast<unsigned>((count / 4 + 255) / 256), 256, 0, stream_>>>(quads(a), quads(b), quads(sums),
                                                                                   count / 4, period / 4);
    must_launch("add_quads");
  }
  // to = from + row, in each row.
  void add_row(const Matrix& from, const Bf16* row, const Matrix& to) const {
    add_quads_of(from.data, row, to.data, from.rows * from.columns, from.columns);
  }
  void add(const Matrix& to, const Matrix& from) const {
    const index_t count = to.rows * to.columns;
    add_quads_of(to.data, from.data, to.data, count, count);
  }
  void add_up_rows(const Matrix& from, const Matrix& to) const {
    multiply(Operand(ones_.as<Bf16>(), 1, from.rows), from, to);
  }

  void spoil(const BlockGradients& gradients, const BlockPart& which) const {
    for (const BlockParameter p : which) {
      must(cudaMemsetAsync(gradients[p], 0xFF, static_cast<std::size_t>(2 * shape_.elements(p)), stream_),
           "cudaMemsetAsync");
    }
  }

  BlockShape shape_;
  cudaStream_t stream_;
  Products products_;
  bool spoils_ = false;
  std::vector<DeviceMemory> inputs_;
  std::vector<Layer> layers_;
  DeviceMemory x_{numbers(shape_.tokens * shape_.width)};  // between blocks; in the backward, the gradient there
  DeviceMemory ones_{numbers(shape_.tokens)};
  DeviceMemory scores_{numbers(shape_.key_heads() * shape_.tokens * shape_.tokens)};
  DeviceMemory d_scores_{numbers(shape_.key_heads() * shape_.tokens * shape_.tokens)};
  DeviceMemory d_inner_{numbers(shape_.tokens * shape_.width)};
  DeviceMemory d_middle_{numbers(shape_.tokens * shape_.feed_forward())};
  DeviceMemory d_query_{numbers(shape_.tokens * shape_.width)};
  DeviceMemory d_key_{numbers(shape_.tokens * shape_.keys())};
  DeviceMemory d_value_{numbers(shape_.tokens * shape_.keys())};
};

}  // namespace tide_benchmark
