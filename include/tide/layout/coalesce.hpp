// SPDX-License-Identifier: Apache-2.0
//
// coalesce: the same bytes in fewer blocks, because a driver call costs about as much as a megabyte.
//
//   neighbours     |aaaa|bbbb|            ->   |aaaaaaaa|             one longer run
//   families       |g0|u0|d0|g1|u1|d1|    ->   |g0|  |  |g1|          three 2-D blocks, however many repetitions
//
// Laws: in block.hpp                                 (tests/layout/coalesce.test.cpp)

#pragma once

#include <tide/layout/block.hpp>            // Block
#include <tide/layout/detail/families.hpp>  // merge_neighbours, merge_families

#include <utility>
#include <vector>

namespace tide {

/// Merges neighbours into longer runs, then runs of one width at equal distances on both sides into 2-D blocks.
/// Blocks must come in the order of their targets. Keeps the order of the first byte of each block.
[[nodiscard]] constexpr std::vector<Block> coalesce(std::vector<Block> blocks) {
  return detail::merge_families(detail::merge_neighbours(std::move(blocks)));
}

/// The same, but no block holds bytes of two parameters: for sources where each parameter has a pointer of its own.
[[nodiscard]] constexpr std::vector<Block> coalesce_each_parameter(const std::vector<Block>& blocks) {
  std::vector<Block> merged;
  for (std::size_t first = 0; first < blocks.size();) {
    std::size_t last = first;
    while (last < blocks.size() && blocks[last].parameter == blocks[first].parameter) ++last;
    std::vector<Block> own(blocks.begin() + static_cast<std::ptrdiff_t>(first),
                           blocks.begin() + static_cast<std::ptrdiff_t>(last));
    for (const Block& block : coalesce(std::move(own))) merged.push_back(block);
    first = last;
  }
  return merged;
}

}  // namespace tide
