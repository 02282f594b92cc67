// SPDX-License-Identifier: Apache-2.0
//
// What the bytes of a memory are right after the caller has filled it, and how a cast changes what bytes are.

#pragma once

#include <tide/plan/detail/cells.hpp>        // Cell, ByteContent
#include <tide/plan/detail/piece_table.hpp>  // PieceTable

#include <algorithm>
#include <vector>

namespace tide::detail {

// Appends [begin, end); bytes that were left out before it are padding.
inline void append_cell(std::vector<Cell>& cells, index_t begin, index_t end, NodeIndex writer,
                        const ByteContent& content) {
  if (begin >= end) return;
  // The end of the last cell is not stored: a cell behind each one says where it ends, and is replaced or padding.
  if (!cells.empty() && cells.back().begin == begin) cells.pop_back();
  if (cells.empty() && begin > 0)
    cells.push_back({0, no_node, ReaderLists::none, {0, -1, ByteContent::Kind::padding, 0}});
  cells.push_back({begin, writer, ReaderLists::none, content});
  cells.push_back({end, no_node, ReaderLists::none, {0, -1, ByteContent::Kind::padding, 0}});
}

// Drops the cell behind the last one where the memory ends there.
[[nodiscard]] inline std::vector<Cell> finish_cells(std::vector<Cell> cells, index_t bytes) {
  if (!cells.empty() && cells.back().begin >= bytes) cells.pop_back();
  if (cells.empty()) cells.push_back({0, no_node, ReaderLists::none, {0, -1, ByteContent::Kind::padding, 0}});
  return cells;
}

// A rank's packed shards or masters, just written in `run`.
[[nodiscard]] inline std::vector<Cell> filled_shards(const PieceTable& pieces, Rank rank, Space space, NodeIndex writer,
                                                     index_t run) {
  const bool masters = space == Space::master;
  const Buffer packed = masters ? Buffer::masters : Buffer::shards;
  const index_t bytes = pieces.bytes(rank, space);
  std::vector<Cell> cells;
  for (const Piece& piece : pieces.pieces(rank)) {
    const index_t begin = piece.offset(packed);
    pieces.for_each_run(rank, packed, begin, begin + piece.bytes(packed),
                        [&](const Piece&, index_t at, index_t count, index_t element) {
                          ByteContent content;
                          content.kind = masters ? ByteContent::Kind::master : ByteContent::Kind::gathered;
                          content.run = static_cast<std::uint8_t>(run);
                          content.offset = masters ? 4 * (pieces.elements_before(piece.parameter.value) + element)
                                                   : pieces.dense(Buffer::slot, piece.parameter.value).begin +
                                                         element * piece.size(Buffer::slot);
                          append_cell(cells, at, at + count * piece.size(packed), writer, content);
                        });
  }
  return finish_cells(std::move(cells), bytes);
}

// Whole parameters, of nothing (a slot before the first gather) or as a rank's gradients.
[[nodiscard]] inline std::vector<Cell> filled_parameters(const PieceTable& pieces, Rank rank, Space space,
                                                         NodeIndex writer, index_t run) {
  const bool gradients = space == Space::gradients;
  std::vector<Cell> cells;
  for (index_t p = 0; p < pieces.parameters(); ++p) {
    const PieceTable::Range range = pieces.dense(gradients ? Buffer::gradients : Buffer::slot, p);
    ByteContent content;
    if (gradients) content = {range.begin, rank.value, ByteContent::Kind::gradient, static_cast<std::uint8_t>(run)};
    append_cell(cells, range.begin, range.end, writer, content);
  }
  return finish_cells(std::move(cells), pieces.bytes(rank, space));
}

// A rank's output, as the caller left it before the first run.
[[nodiscard]] inline std::vector<Cell> filled_output(const PieceTable& pieces, Rank rank, NodeIndex writer) {
  std::vector<Cell> cells;
  for (const Piece& piece : pieces.pieces(rank)) {
    const index_t begin = piece.offset(Buffer::output);
    append_cell(cells, begin, begin + piece.bytes(Buffer::output), writer, {});
  }
  return finish_cells(std::move(cells), pieces.bytes(rank, Space::output));
}

// Whether content begins with an element of a parameter; what is of no element is of every parameter.
[[nodiscard]] inline bool is_of(const PieceTable& pieces, const ByteContent& content, index_t parameter) {
  const auto numbered = [&](index_t size) {
    return pieces.elements_before(parameter) * size <= content.offset &&
           content.offset < pieces.elements_before(parameter + 1) * size;
  };
  switch (content.kind) {
    case ByteContent::Kind::gathered:
      return pieces.dense(Buffer::slot, parameter).holds(content.offset);
    case ByteContent::Kind::gradient:
      return pieces.dense(Buffer::gradients, parameter).holds(content.offset);
    case ByteContent::Kind::master:
      return numbered(4);
    case ByteContent::Kind::partial:
      return numbered(static_cast<index_t>(size_bytes(content.element)));
    case ByteContent::Kind::nothing:
    case ByteContent::Kind::padding:
    case ByteContent::Kind::sum:
    case ByteContent::Kind::zeros:
    case ByteContent::Kind::grid:
      break;
  }
  return true;
}

// What `bytes` bytes of masters are after a cast: calls f(content, bytes of the result) for each part.
template <class F>
void cast_content(const PieceTable& pieces, const Kernel& kernel, const ByteContent& content, index_t bytes, F f) {
  const auto size = static_cast<index_t>(size_bytes(kernel.output));
  const bool masters = content.kind == ByteContent::Kind::master && kernel.input == Element::f32 &&
                       content.offset % 4 == 0 && bytes % 4 == 0;
  if (!masters) return f(ByteContent{}, bytes / static_cast<index_t>(size_bytes(kernel.input)) * size);
  for (index_t element = content.offset / 4, left = bytes / 4; left > 0;) {
    const index_t p = pieces.parameter_of_element(element);
    const index_t count = std::min(left, pieces.elements_before(p + 1) - element);
    ByteContent result = content;
    result.kind = pieces.layout().group[ParameterIndex{p}].gathered == kernel.output ? ByteContent::Kind::gathered
                                                                                     : ByteContent::Kind::nothing;
    result.offset = pieces.dense(Buffer::slot, p).begin + (element - pieces.elements_before(p)) * size;
    f(result, count * size);
    element += count;
    left -= count;
  }
}

}  // namespace tide::detail
