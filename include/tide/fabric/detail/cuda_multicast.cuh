// SPDX-License-Identifier: Apache-2.0
//
// Where a multicast write goes and a sum in the switch reads, and the trial of it in init.
//
//   hardware    one start: NCCL's multicast address, behind which a switch writes to, and adds, all arenas of the node
//   emulated    one start per rank of the node: its arena; for tests
//
// Tests: tests/fabric/cuda_multicast.test.cu, and emulated tests/fabric/cuda_ranks.test.cu

#pragma once

#include <tide/core/index.hpp>                  // index_t
#include <tide/fabric/detail/cuda_check.cuh>    // check
#include <tide/fabric/detail/cuda_kernels.cuh>  // CudaLaunch

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// A block of rows as one call of a copy engine.
inline void copy_block(std::byte* to, index_t to_pitch, const std::byte* from, index_t from_pitch, index_t width,
                       index_t rows, cudaStream_t stream) {
  if (rows == 1) {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(width), cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
  } else {
    check(cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_pitch), from, static_cast<std::size_t>(from_pitch),
                            static_cast<std::size_t>(width), static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice,
                            stream),
          "cudaMemcpy2DAsync");
  }
}

// Rows that long are copied inside a GPU one by one: as a block of two dimensions they take the driver twice the time,
// 0.80 ms instead of 0.44 for half a Llama-3.1-70B block in nine rows. Between GPUs both take the same.
inline constexpr index_t long_row_bytes = index_t{8} << 20;

// Starts of arenas, to which a write goes at one offset from each.
class MulticastStarts {
 public:
  MulticastStarts() = default;
  MulticastStarts(const MulticastStarts&) = delete;
  MulticastStarts& operator=(const MulticastStarts&) = delete;
  ~MulticastStarts() { release(); }

  void set_hardware(std::byte* address) { starts_ = {address}; }

  // @param arenas  of the ranks of the node, in the order in which a rank writes to them
  // @param sums    whether there are sums in the switch, whose kernel reads the list
  void set_emulated(std::vector<std::byte*> arenas, bool sums) {
    starts_ = std::move(arenas);
    if (!sums) return;
    const std::size_t bytes = starts_.size() * sizeof starts_[0];
    check(cudaMalloc(&on_device_, bytes), "cudaMalloc");
    check(cudaMemcpy(on_device_, starts_.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  // What a write goes to, one copy each; empty where there is no multicast.
  [[nodiscard]] const std::vector<std::byte*>& writes() const noexcept { return starts_; }

  // What a sum in the switch reads.
  void bind_sum(CudaLaunch& launch) const noexcept {
    launch.node = on_device_;
    launch.node_ranks = static_cast<int>(starts_.size());
    launch.source = on_device_ == nullptr ? starts_.front() : nullptr;
  }

  void release() noexcept {
    starts_.clear();
    if (on_device_ != nullptr) cudaFree(std::exchange(on_device_, nullptr));
  }
  // Leaves everything to the end of the process.
  void abandon() noexcept { on_device_ = nullptr; }

 private:
  std::vector<std::byte*> starts_;
  const std::byte** on_device_ = nullptr;
};

// A write of a trial: from and to offsets of an area.
struct TrialBlock {
  const char* what;
  index_t target;
  index_t target_pitch;
  index_t source;
  index_t source_pitch;
  index_t width;
  index_t rows;
  bool onto_itself;  // from the same place of the own arena, as a gather from the own slot does
};
inline constexpr std::array trial_blocks = {
    TrialBlock{"a copy", 0, 0, 0, 0, 4096, 1, false},
    TrialBlock{"a copy of an odd number of bytes between odd addresses", 4353, 0, 4097, 0, 1021, 1, false},
    TrialBlock{"a copy of 2 bytes", 5634, 0, 5632, 0, 2, 1, false},
    TrialBlock{"a 2-D copy", 6144, 256, 6144, 192, 128, 4, false},
    TrialBlock{"a 2-D copy of odd rows", 7425, 131, 7169, 67, 61, 5, false},
    TrialBlock{"a copy onto itself", 8192, 0, 8192, 0, 2048, 1, true},
    TrialBlock{"a 2-D copy onto itself", 10242, 130, 10242, 130, 66, 6, true},
};

// Writes of every rank to all, in each shape that plans have, and a sum of what lies on all: no document says which
// addresses and widths a copy engine may write through a switch, so it is tried before a plan does it. A rank writes to
// an area of its own, at the same place of all arenas.
class MulticastTrial {
 public:
  static constexpr index_t sum_at = 12288;  // f32 words that only the own rank writes, and a sum reads
  static constexpr index_t sum_words = 512;
  static constexpr index_t area_bytes = 16384;
  static_assert(sum_at + 4 * sum_words <= area_bytes);

  // Of each arena.
  [[nodiscard]] static index_t bytes(index_t ranks) noexcept { return ranks * area_bytes; }

  // @param own     arena of the rank
  // @param offset  of the areas in it
  // @param rank    in the node, of `ranks`
  MulticastTrial(std::byte* own, index_t offset, index_t rank, index_t ranks, cudaStream_t stream)
      : own_(own + offset), offset_(offset), rank_(rank), ranks_(ranks), stream_(stream) {
    check(cudaMalloc(&source_, area_bytes), "cudaMalloc");
  }
  MulticastTrial(const MulticastTrial&) = delete;
  MulticastTrial& operator=(const MulticastTrial&) = delete;
  ~MulticastTrial() { cudaFree(source_); }

  // Spoils all areas of the own arena, and puts there what is local. Then the ranks meet.
  void prepare() {
    std::vector<std::byte> areas(static_cast<std::size_t>(bytes(ranks_)), poison);
    for (index_t r = 0; r < ranks_; ++r) {
      // All areas hold numbers of this rank: a switch adds those of all ranks in any of them.
      for (index_t w = 0; w < sum_words; ++w) {
        const float number = value(rank_, w);
        std::memcpy(areas.data() + r * area_bytes + sum_at + 4 * w, &number, 4);
      }
    }
    std::vector<std::byte> sent(static_cast<std::size_t>(area_bytes), poison);
    for (const TrialBlock& block : trial_blocks) {
      fill(block.onto_itself ? areas.data() + rank_ * area_bytes : sent.data(), block.source, block.source_pitch, block,
           rank_);
    }
    check(cudaMemcpy(own_, areas.data(), areas.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemcpy(source_, sent.data(), sent.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  // Writes to all ranks, on the stream, on which the caller waits. Then the ranks meet.
  void write(const MulticastStarts& starts) const {
    for (const TrialBlock& block : trial_blocks) {
      const std::byte* from = block.onto_itself ? own_ + rank_ * area_bytes : source_;
      for (std::byte* start : starts.writes()) {
        copy_block(start + offset_ + rank_ * area_bytes + block.target, block.target_pitch, from + block.source,
                   block.source_pitch, block.width, block.rows, stream_);
      }
    }
  }

  // What did not arrive here as it was sent, in words; empty if all did.
  [[nodiscard]] std::string wrong_write() const {
    check(cudaStreamSynchronize(stream_), "a multicast write");
    std::vector<std::byte> got(static_cast<std::size_t>(bytes(ranks_)));
    check(cudaMemcpy(got.data(), own_, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (index_t r = 0; r < ranks_; ++r) {
      // Between the blocks, too, nothing may change: the blocks come one after the other.
      std::vector<std::byte> expected(static_cast<std::size_t>(area_bytes), poison);
      for (const TrialBlock& block : trial_blocks) fill(expected.data(), block.target, block.target_pitch, block, r);
      const std::byte* area = got.data() + r * area_bytes;
      for (std::size_t b = 0; b < trial_blocks.size(); ++b) {
        const index_t begin = trial_blocks[b].target;
        const index_t end = b + 1 < trial_blocks.size() ? trial_blocks[b + 1].target : sum_at;
        if (std::memcmp(area + begin, expected.data() + begin, static_cast<std::size_t>(end - begin)) != 0) {
          return text({trial_blocks[b].what, " from rank ", r, " of the node is not what was sent"});
        }
      }
    }
    return {};
  }

  // What a sum in the switch got wrong; empty if nothing.  @pre the starts are those of hardware
  // @param sum  a kernel of the plans, which stores or adds
  [[nodiscard]] std::string wrong_sum(const MulticastStarts& starts, CudaKernel sum) const {
    // Whole vectors and a rest; then, from an odd word on, words alone.
    const std::array<CudaRow, 2> rows = {CudaRow{0, 0, 0, 203, 0, 0}, CudaRow{205, 0, 205, 102, 1, 0}};
    Scratch device_rows(sizeof rows);
    Scratch out(4 * sum_words);
    check(cudaMemcpy(device_rows.memory, rows.data(), sizeof rows, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemset(out.memory, 0, 4 * sum_words), "cudaMemset");
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    CudaLaunch launch;
    launch.rows = static_cast<const CudaRow*>(device_rows.memory);
    launch.row_count = static_cast<int>(rows.size());
    launch.tiles = 2;
    launch.target = static_cast<std::byte*>(out.memory);
    starts.bind_sum(launch);
    const index_t at = offset_ + rank_ * area_bytes + sum_at;
    launch.source += at;
    check(sum(launch, 1, stream_), "a sum in the switch");
    check(cudaStreamSynchronize(stream_),
          "a sum in the switch, whose code must be compiled for compute capability 9.0 or newer,");
    std::array<float, sum_words> got{};
    check(cudaMemcpy(got.data(), out.memory, sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (index_t w = 0; w < sum_words; ++w) {
      float expected = 0;
      const bool is_in_rows = w < 203 || (w >= 205 && w < 307);
      for (index_t r = 0; r < ranks_ && is_in_rows; ++r) expected += value(r, w);
      const float found = got[static_cast<std::size_t>(w)];
      if (found == expected) continue;
      return text({std::to_string(found), " where the sum of word ", w, " is ", std::to_string(expected)});
    }
    return {};
  }

 private:
  static constexpr std::byte poison{0xEE};

  struct Scratch {
    explicit Scratch(std::size_t bytes) { check(cudaMalloc(&memory, bytes), "cudaMalloc"); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { cudaFree(memory); }
    void* memory = nullptr;
  };

  // Whole numbers whose sums are exact in every order.
  [[nodiscard]] static float value(index_t rank, index_t word) noexcept {
    return static_cast<float>((rank * 37 + word * 11) % 64 + 1);
  }

  // What a rank sends in a block; never the poison.
  static void fill(std::byte* area, index_t at, index_t pitch, const TrialBlock& block, index_t rank) noexcept {
    for (index_t row = 0; row < block.rows; ++row) {
      for (index_t i = 0; i < block.width; ++i) {
        area[at + row * pitch + i] = static_cast<std::byte>((rank * 29 + block.target * 5 + row * 7 + i * 3) % 200 + 1);
      }
    }
  }

  std::byte* own_;
  index_t offset_;
  index_t rank_;
  index_t ranks_;
  cudaStream_t stream_;
  std::byte* source_ = nullptr;
};

}  // namespace tide::detail
