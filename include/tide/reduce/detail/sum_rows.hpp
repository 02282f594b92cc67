// SPDX-License-Identifier: Apache-2.0
//
// Sums on one lane that do not depend on each other, before they become ops: those of equal shape at equal distances
// become rows of one op. So a plan has as many ops for all owners as for one, where those have equal parts.
//
//   owner at position   0      1      2      3
//   source and target   |####| |####| |####| |##|       one op of three rows, and one of a row
//
// The others must step as the target does, element by element: rows of an op have no pitch for them (plan/op.hpp).

#pragma once

#include <tide/layout/block.hpp>  // Block, max_pitch, max_rows
#include <tide/plan/op.hpp>       // Place, Address

#include <algorithm>
#include <vector>

namespace tide::detail {

struct RowSum {
  Block block{};  // `kind` is the kernel
  Place source{};
  Place target{};
  Address others{};
  index_t others_element = 0;  // bytes from element to element of the others, where rows begin; 0 where none are read
  index_t position = 0;        // of the own input
};

// Distances from row to row.
struct RowSteps {
  index_t source = 0;
  index_t target = 0;
};

// The distances at which `next` would be the row behind those of `sum`.
[[nodiscard]] constexpr RowSteps steps_to(const RowSum& sum, const RowSum& next) noexcept {
  const index_t before = sum.block.rows - 1;
  return {next.block.source - sum.block.source - before * sum.block.source_pitch,
          next.block.target - sum.block.target - before * sum.block.target_pitch};
}

// Whether `next` is one more row of `sum`.
[[nodiscard]] constexpr bool is_next_row(const RowSum& sum, const RowSum& next) noexcept {
  const Block& rows = sum.block;
  const Block& row = next.block;
  if (row.rows != 1 || rows.rows == max_rows || row.parameter != rows.parameter || row.kind != rows.kind ||
      row.source_width != rows.source_width || row.target_width != rows.target_width) {
    return false;
  }
  if (next.source != sum.source || next.target != sum.target || next.others.place != sum.others.place ||
      next.position != sum.position) {
    return false;
  }
  const RowSteps steps = steps_to(sum, next);
  if (rows.rows > 1 && (steps.source != rows.source_pitch || steps.target != rows.target_pitch)) return false;
  if (steps.source < rows.source_width || steps.source > max_pitch) return false;
  if (steps.target < rows.target_width || steps.target > max_pitch || steps.target % 4 != 0) return false;
  return sum.others_element == 0 ||
         next.others.offset - sum.others.offset == rows.rows * (steps.target / 4) * sum.others_element;
}

// How many sums back the row before may be: the most parts of an owner that find those of the one before.
inline constexpr std::size_t most_open_rows = 32;

// The same sums in fewer ops, each at the place of its first row.
[[nodiscard]] constexpr std::vector<RowSum> in_rows(const std::vector<RowSum>& sums) {
  std::vector<RowSum> merged;
  for (const RowSum& sum : sums) {
    const auto open = static_cast<std::ptrdiff_t>(std::min(merged.size(), most_open_rows));
    const auto before =
        std::find_if(merged.end() - open, merged.end(), [&](const RowSum& one) { return is_next_row(one, sum); });
    if (before == merged.end()) {
      merged.push_back(sum);
      continue;
    }
    const RowSteps steps = steps_to(*before, sum);
    before->block.source_pitch = steps.source;
    before->block.target_pitch = steps.target;
    ++before->block.rows;
  }
  return merged;
}

}  // namespace tide::detail
