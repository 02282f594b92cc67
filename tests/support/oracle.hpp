// SPDX-License-Identifier: Apache-2.0
//
// The layout oracle: where every element of every parameter lies, found by visiting them one by one.
//
// It uses of the library what is data (names, shapes, elements) and nothing that computes an offset.

#pragma once

#include <tide/layout/group.hpp>
#include <tide/layout/packing.hpp>

#include <cstddef>
#include <vector>

namespace tide_test::oracle {

using tide::index_t;

/// How many of `rows` rows each rank gets from torch.chunk: equal chunks, as small as will do, dealt until none is
/// left.
inline std::vector<index_t> chunk_rows(index_t rows, index_t ranks) {
  index_t chunk = 0;
  while (chunk * ranks < rows) ++chunk;
  std::vector<index_t> rows_of_rank;
  index_t left = rows;
  for (index_t rank = 0; rank < ranks; ++rank) {
    const index_t taken = left < chunk ? left : chunk;
    rows_of_rank.push_back(taken);
    left -= taken;
  }
  return rows_of_rank;
}

/// How many rows of its sharded dimension each rank gets of a parameter.
inline std::vector<index_t> rows_of(const tide::Parameter& parameter, index_t ranks) {
  const index_t rows = parameter.shape[parameter.sharding.dimension];
  switch (parameter.sharding.kind) {
    case tide::Sharding::Kind::chunked:
      return chunk_rows(rows, ranks);
    case tide::Sharding::Kind::ragged: {
      const auto given = parameter.sharding.rows_of_rank;
      return {given.begin(), given.end()};
    }
    case tide::Sharding::Kind::ruled:
      break;
  }
  std::vector<index_t> rows_of_rank;
  for (index_t rank = 0; rank < ranks; ++rank) {
    rows_of_rank.push_back(parameter.sharding.rule(rows, ranks, rank + 1) - parameter.sharding.rule(rows, ranks, rank));
  }
  return rows_of_rank;
}

/// One element of a parameter.
struct Place {
  std::size_t parameter;
  index_t owner;   ///< the rank that owns it
  index_t dense;   ///< its position in the whole parameter, in elements
  index_t packed;  ///< its position in the owner's shard of the parameter, in elements
};

/// Every element of every parameter, in the order of whole parameters.
inline std::vector<Place> places(const tide::GroupView& group, index_t ranks) {
  std::vector<Place> all;
  for (std::size_t p = 0; p < group.parameters.size(); ++p) {
    const tide::Parameter& parameter = group.parameters[p];
    const int dimension = parameter.sharding.dimension;
    index_t elements = 1;
    for (int d = 0; d < parameter.shape.rank; ++d) elements *= parameter.shape[d];
    index_t inner = 1;  // elements between two neighbours along the sharded dimension
    for (int d = dimension + 1; d < parameter.shape.rank; ++d) inner *= parameter.shape[d];

    std::vector<index_t> owner_of_row;
    const std::vector<index_t> rows_of_rank = rows_of(parameter, ranks);
    for (index_t rank = 0; rank < ranks; ++rank) {
      for (index_t n = 0; n < rows_of_rank[static_cast<std::size_t>(rank)]; ++n) owner_of_row.push_back(rank);
    }
    std::vector<index_t> owned_so_far(static_cast<std::size_t>(ranks), 0);
    for (index_t i = 0; i < elements; ++i) {
      const index_t row = i / inner % parameter.shape[dimension];
      const index_t owner = owner_of_row[static_cast<std::size_t>(row)];
      all.push_back({p, owner, i, owned_so_far[static_cast<std::size_t>(owner)]++});
    }
  }
  return all;
}

/// Where each parameter's shard starts in the packed buffer of `rank`, and, as the last entry, where the buffer ends:
/// bytes, with `element_bytes[p]` bytes for each element of parameter p.
inline std::vector<index_t> packed_starts(const tide::GroupView& group, index_t ranks, index_t rank,
                                          const std::vector<index_t>& element_bytes, bool fsdp2) {
  std::vector<index_t> starts;
  index_t end = 0;
  for (std::size_t p = 0; p < group.parameters.size(); ++p) {
    const tide::Parameter& parameter = group.parameters[p];
    const std::vector<index_t> rows_of_rank = rows_of(parameter, ranks);
    index_t row_elements = 1;  // elements of one row along the sharded dimension, in all its runs
    for (int d = 0; d < parameter.shape.rank; ++d) {
      if (d != parameter.sharding.dimension) row_elements *= parameter.shape[d];
    }
    index_t rows = rows_of_rank[static_cast<std::size_t>(rank)];
    if (fsdp2) {  // as many rows as the rank that owns most
      for (const index_t others : rows_of_rank) rows = others > rows ? others : rows;
    }
    index_t start = end;
    while (!fsdp2 && start % 16 != 0) ++start;
    starts.push_back(start);
    if (rows * row_elements > 0) end = start + rows * row_elements * element_bytes[p];
  }
  starts.push_back(end);
  return starts;
}

/// Where each whole parameter starts in a slot, and, as the last entry, how long the slot is: bytes.
inline std::vector<index_t> dense_starts(const tide::GroupView& group, const std::vector<index_t>& element_bytes,
                                         index_t alignment) {
  std::vector<index_t> starts;
  index_t end = 0;
  for (std::size_t p = 0; p < group.parameters.size(); ++p) {
    index_t elements = 1;
    for (int d = 0; d < group.parameters[p].shape.rank; ++d) elements *= group.parameters[p].shape[d];
    index_t start = end;
    while (start % alignment != 0) ++start;
    starts.push_back(start);
    if (elements > 0) end = start + elements * element_bytes[p];
  }
  while (end % alignment != 0) ++end;
  starts.push_back(end);
  return starts;
}

}  // namespace tide_test::oracle
