// SPDX-License-Identifier: Apache-2.0
//
// The laws of layouts as functions, for static tests, for sweeps and for your own shard rule or packing:
//
//   static_assert(laws::shard_rule<MyRule>(1000, 64));
//   static_assert(laws::partition(ShardLayout<group, Mesh<1, 8>, MyPacking>().view()));
//
// A verdict is true where the law holds; else it names the law, and the parameter and rank that break it.

#pragma once

#include <tide/layout/block.hpp>
#include <tide/layout/layout_view.hpp>
#include <tide/layout/shard_rule.hpp>

#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

namespace tide_test::laws {

using tide::index_t;

/// What a law says of its subject.
struct Verdict {
  std::string_view broken = {};  ///< the law that does not hold; empty where all do
  index_t parameter = -1;
  index_t rank = -1;

  constexpr explicit operator bool() const { return broken.empty(); }
};

inline std::ostream& operator<<(std::ostream& out, const Verdict& verdict) {
  if (verdict) return out << "holds";
  out << "broken: " << verdict.broken;
  if (verdict.parameter >= 0) out << ", parameter " << verdict.parameter;
  if (verdict.rank >= 0) out << ", rank " << verdict.rank;
  return out;
}

// ---- ShardRule ----------------------------------------------------------------------------------------------------

// snippet: law-of-shard-rules
/// in order, complete
template <tide::ShardRule Rule>
[[nodiscard]] constexpr Verdict shard_rule(index_t rows, index_t ranks) {
  if (Rule::begin(rows, ranks, 0) != 0) return {"complete: begin(0) == 0", -1, 0};
  for (index_t rank = 0; rank < ranks; ++rank) {
    if (Rule::begin(rows, ranks, rank) > Rule::begin(rows, ranks, rank + 1)) {
      return {"in order: begin(r) <= begin(r + 1)", -1, rank};
    }
  }
  if (Rule::begin(rows, ranks, ranks) != rows) return {"complete: begin(ranks) == rows", -1, ranks};
  return {};
}
// end: law-of-shard-rules

/// bounded: no rank owns more than `chunk` rows
template <tide::ShardRule Rule>
[[nodiscard]] constexpr Verdict bounded(index_t rows, index_t ranks, index_t chunk) {
  for (index_t rank = 0; rank < ranks; ++rank) {
    if (Rule::begin(rows, ranks, rank + 1) - Rule::begin(rows, ranks, rank) > chunk) return {"bounded", -1, rank};
  }
  return {};
}

// ---- Mesh ---------------------------------------------------------------------------------------------------------

/// inverse, bounded
[[nodiscard]] constexpr Verdict mesh(const tide::MeshShape& shape) {
  for (index_t r = 0; r < shape.ranks(); ++r) {
    const tide::Rank rank{r};
    if (shape.rank(shape.node(rank), shape.local(rank)) != rank)
      return {"inverse: rank(node(r), local(r)) == r", -1, r};
    if (shape.node(rank) < 0 || shape.node(rank) >= shape.nodes) return {"bounded: node(r) < nodes", -1, r};
    if (shape.local(rank) < 0 || shape.local(rank) >= shape.ranks_per_node) {
      return {"bounded: local(r) < ranks_per_node", -1, r};
    }
  }
  return {};
}

// ---- LayoutView and Packing ---------------------------------------------------------------------------------------

inline constexpr tide::Buffer all_buffers[] = {tide::Buffer::masters, tide::Buffer::shards, tide::Buffer::output,
                                               tide::Buffer::slot, tide::Buffer::gradients};

/// partition: for every parameter, the pieces of all ranks are disjoint, complete and in bounds
[[nodiscard]] constexpr Verdict partition(const tide::LayoutView& view) {
  struct Progress {
    index_t begin = 0;  // rows that the ranks before own
    index_t first = 0;  // elements that they own of each run
  };
  std::vector<Progress> progress(static_cast<std::size_t>(view.group.size()));
  Verdict verdict;
  for (index_t r = 0; r < view.mesh.ranks(); ++r) {
    view.for_each_piece(tide::Rank{r}, [&](const tide::Piece& piece) {
      const index_t p = piece.parameter.value;
      const tide::Parameter& parameter = view.group[piece.parameter];
      Progress& owned = progress[static_cast<std::size_t>(p)];
      if (!verdict) return;
      if (piece.count < 0 || piece.width < 0) verdict = {"partition: in bounds: no piece is negative", p, r};
      if (piece.outer * piece.pitch != parameter.shape.elements()) {
        verdict = {"partition: complete: all runs of all ranks are the parameter", p, r};
      }
      if (piece.begin != owned.begin || (piece.width > 0 && piece.first != owned.first)) {
        verdict = {"partition: disjoint: a piece begins where the one before ends", p, r};
      }
      owned.begin += piece.count;
      owned.first += piece.width;
      const bool last = r + 1 == view.mesh.ranks();
      if (last && (owned.first != piece.pitch || owned.begin != parameter.shape[parameter.sharding.dimension])) {
        verdict = {"partition: complete: the last piece ends where the parameter ends", p, r};
      }
    });
  }
  return verdict;
}

/// disjoint: pieces of different parameters share no byte of any buffer, lie in group order and inside the buffer
[[nodiscard]] constexpr Verdict disjoint(const tide::LayoutView& view) {
  Verdict verdict;
  for (index_t r = 0; r < view.mesh.ranks(); ++r) {
    for (const tide::Buffer buffer : all_buffers) {
      const index_t bytes = view.bytes(buffer, tide::Rank{r});
      index_t end = 0;
      view.for_each_piece(tide::Rank{r}, [&](const tide::Piece& piece) {
        const index_t p = piece.parameter.value;
        const index_t elements = is_dense(buffer) ? piece.outer * piece.pitch : piece.elements();
        const index_t start = piece.start[static_cast<std::size_t>(buffer)];
        if (!verdict || elements == 0) return;
        if (start < end) verdict = {"disjoint: a parameter starts behind the one before", p, r};
        end = start + elements * piece.size(buffer);
        if (end > bytes) verdict = {"disjoint: a parameter ends inside the buffer", p, r};
        if (piece.elements() == 0) return;
        const index_t last = piece.offset(buffer) + (piece.outer - 1) * piece.pitch_bytes(buffer);
        if (piece.offset(buffer) < start || last + piece.width * piece.size(buffer) > end) {
          verdict = {"disjoint: a piece lies inside its parameter", p, r};
        }
      });
    }
  }
  return verdict;
}

/// aligned: each start is a multiple of the packing's or the storage's alignment
[[nodiscard]] constexpr Verdict aligned(const tide::LayoutView& view) {
  Verdict verdict;
  for (index_t r = 0; r < view.mesh.ranks(); ++r) {
    view.for_each_piece(tide::Rank{r}, [&](const tide::Piece& piece) {
      for (const tide::Buffer buffer : all_buffers) {
        const index_t alignment = is_dense(buffer) ? view.storage_alignment : view.packing.start_alignment;
        if (piece.start[static_cast<std::size_t>(buffer)] % alignment != 0)
          verdict = {"aligned", piece.parameter.value, r};
      }
    });
  }
  return verdict;
}

/// All laws of a layout.
[[nodiscard]] constexpr Verdict layout(const tide::LayoutView& view) {
  if (const Verdict verdict = partition(view); !verdict) return verdict;
  if (const Verdict verdict = disjoint(view); !verdict) return verdict;
  return aligned(view);
}

// ---- coalesce -----------------------------------------------------------------------------------------------------

/// One run of bytes and where it goes.
struct Run {
  index_t target;
  index_t source;
  index_t target_width;
  index_t source_width;
  int kind;

  [[nodiscard]] friend constexpr bool operator==(const Run&, const Run&) = default;
};

/// The runs of all blocks in the order of their targets, touching ones joined: lists that move the same bytes have the
/// same runs.
[[nodiscard]] constexpr std::vector<Run> runs(const std::vector<tide::Block>& blocks) {
  std::vector<Run> all;
  for (const tide::Block& block : blocks) {
    for (index_t row = 0; row < block.rows; ++row) {
      if (block.target_width == 0) continue;
      all.push_back({block.target + row * block.target_pitch, block.source + row * block.source_pitch,
                     block.target_width, block.source_width, block.kind});
    }
  }
  std::sort(all.begin(), all.end(), [](const Run& a, const Run& b) {
    return a.target != b.target ? a.target < b.target : a.source < b.source;
  });
  std::vector<Run> joined;
  for (const Run& run : all) {
    if (!joined.empty()) {
      Run& last = joined.back();
      const bool touching =
          last.target + last.target_width == run.target && last.source + last.source_width == run.source;
      const bool one_ratio = last.target_width * run.source_width == run.target_width * last.source_width;
      if (touching && one_ratio && last.kind == run.kind) {
        last.target_width += run.target_width;
        last.source_width += run.source_width;
        continue;
      }
    }
    joined.push_back(run);
  }
  return joined;
}

/// same bytes: two lists of blocks carry the same source bytes to the same target bytes
[[nodiscard]] constexpr Verdict coalesce_same_bytes(const std::vector<tide::Block>& before,
                                                    const std::vector<tide::Block>& after) {
  return runs(before) == runs(after) ? Verdict{} : Verdict{"same bytes"};
}

/// same bytes, and fewer: never more blocks than before, none longer or wider than a 2-D copy can be
[[nodiscard]] constexpr Verdict coalesced(const std::vector<tide::Block>& before,
                                          const std::vector<tide::Block>& after) {
  if (after.size() > before.size()) return {"fewer"};
  for (const tide::Block& block : after) {
    if (block.rows > tide::max_rows) return {"fewer: rows of a block are bounded", block.parameter.value};
    if (block.rows > 1 && (block.source_pitch > tide::max_pitch || block.target_pitch > tide::max_pitch)) {
      return {"fewer: the pitch of a block is bounded", block.parameter.value};
    }
  }
  return coalesce_same_bytes(before, after);
}

}  // namespace tide_test::laws
