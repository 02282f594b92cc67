// SPDX-License-Identifier: Apache-2.0
//
// What sums do to the memories, replayed: law 3 for each row.
//
//   over local ranks   gradient of the own rank, pieces of the others    ->  the sum over nodes [n, n + 1)
//   over nodes         sums over [a, b), [b, c), [c, d)                  ->  the sum over nodes [a, d)
//   in the switch      each place of each rank of the node: a sum over some nodes, or zeros from before the first run
//
// A sum over all nodes is what the output needs. Where nodes have one rank, its gradient is a sum over one node. Sums
// over nodes make a larger one only where the tree of reduce/tree.hpp cuts it there: so each input is in the output
// once, along the tree, whichever way it took. A switch adds in any order: there it is once each, and nothing else is.

#pragma once

#include <tide/plan/detail/op_rows.hpp>       // OpRows, adds_local_ranks
#include <tide/plan/detail/replay_state.hpp>  // ReplayState
#include <tide/plan/detail/sum_batch.hpp>     // SumBatch
#include <tide/plan/detail/sum_inputs.hpp>    // ReplayInputs

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tide::detail {

class SumReplay {
 public:
  explicit SumReplay(ReplayState& state)
      : state_(&state), mesh_(state.collective.layout.mesh), inputs_(state), batch_(state) {}

  void reduce(const Op& op) {
    const SumOp sum{op, kernel_of(op, state_->collective), adds_local_ranks(op, mesh_),
                    adds_in_switch(op, state_->collective)};
    const OpRows source = source_rows(op);
    const OpRows target = target_rows(op, state_->collective);
    const OpRows piece = piece_rows(op, state_->collective);
    const MemoryRegion to{state_->node.rank, op.target.space, op.target.instance};
    const index_t own = mesh_.local(state_->node.rank);
    if (sum.local && op.peer != own) {
      state_->blame(Law::sum, to, target.offset, target.end(), [&](const Side& side) {
        return " writes " + state_->faults.what(side) + " with its own gradient in position " +
               std::to_string(op.peer) + " of the tree, not " + std::to_string(own);
      });
    }
    if (op.target.space == Space::output) {
      for (index_t row = 0; row < target.rows; ++row) {
        row_.clear();
        write_output(sum, target.some(row, 1), source.begin(row), piece.begin(row));
        write(sum, source.some(row, 1), target.some(row, 1));
      }
      return;
    }
    const bool together = sum.local && batch_.holds(state_->now, sum, [&](const OpRows& all, const OpRows& pieces) {
      look(sum, all);
      return parts_.size() == 1 && add_rows(sum, parts_, all, pieces, false);
    });
    look(sum, source);
    for_each_rows_alike(parts_, [&](std::span<const Part> columns) {
      const index_t first = columns[0].first;
      const index_t rows = columns[0].rows;
      if ((rows > 1 || together) &&
          add_rows(sum, columns, source.some(first, rows), piece.some(first, rows), together)) {
        return write(sum, source.some(first, rows), target.some(first, rows));
      }
      for (index_t row = 0; row < rows; ++row) {
        add_row(sum, columns, row, source.begin(first + row), piece.begin(first + row));
        write(sum, source.some(first + row, 1), target.some(first + row, 1));
      }
    });
  }

 private:
  using Elements = ReplayInputs::Elements;
  using Nodes = ReplayInputs::Nodes;

  // Looks at the own input.
  void look(const SumOp& sum, const OpRows& source) {
    parts_.clear();
    state_->memory.look({state_->node.rank, sum.op.source.space, sum.op.source.instance}, source,
                        [&](const Part& part) { parts_.push_back(part); });
  }

  // Writes rows, as `row_` says.
  void write(const SumOp& sum, const OpRows& source, const OpRows& target) {
    const Op& op = sum.op;
    // A sum may replace its own input: each element is read before it is written.
    const bool same = op.source.space == op.target.space && op.source.instance == op.target.instance &&
                      source.offset == target.offset && source.width == target.width &&
                      (source.rows == 1 || source.pitch == target.pitch) && sum.input_bytes() == sum.output_bytes();
    state_->write({state_->node.rank, op.target.space, op.target.instance}, target, row_,
                  ParameterIndex{op.target.parameter}, same);
  }

  // A row of the output: the layout says which elements it has to be.
  void write_output(const SumOp& sum, const OpRows& row, index_t source, index_t piece) {
    const MemoryRegion output{state_->node.rank, Space::output, 0};
    state_->pieces.for_each_run(
        state_->node.rank, Buffer::output, row.offset, row.offset + row.width,
        [&](const Piece& run, index_t begin, index_t count, index_t element) {
          // In elements from the start of the row, so that dense output rows may be runs of several parameters.
          const index_t skip = (begin - row.offset) / 4 * sum.input_bytes();
          const index_t bytes = count * sum.input_bytes();
          const Nodes nodes =
              inputs_.add(sum, {run.parameter.value, element, count, 0, {source + skip, bytes}, {piece + skip, bytes}});
          if (!nodes.any() || (nodes.first == 0 && nodes.last == mesh_.nodes)) return;
          state_->blame(Law::sum, output, begin, begin + 4 * count, [&](const Side& side) {
            return " writes " + state_->faults.what(side) + " with the sum over nodes " + nodes.text() + " of " +
                   std::to_string(mesh_.nodes);
          });
        });
    row_.push_back({{0, state_->now, ReaderLists::none, {row.offset, -1, ByteContent::Kind::sum, state_->run()}}, 0});
  }

  // Partial sums of several rows whose own inputs are `columns`, if all of them are alike: whole elements, of one
  // parameter and over the same nodes. Each column is of the elements that the own input is of.
  // @param read  whether all of it has been read, with other ops, and found to be the sum of the node
  [[nodiscard]] bool add_rows(const SumOp& sum, std::span<const Part> columns, const OpRows& source,
                              const OpRows& piece, bool read) {
    row_.clear();
    index_t next = 0;
    for (const Part& part : columns) {
      const index_t count = part.bytes / sum.input_bytes();
      Elements elements = inputs_.elements_of(part.content, count);
      const Elements last = inputs_.elements_of(part.row(part.rows - 1), count);
      const index_t size = inputs_.element_bytes(part.content, elements.parameter);
      if (elements.count != count || last.count != count || last.parameter != elements.parameter ||
          part.step % size != 0 || count * sum.input_bytes() != part.bytes) {
        return false;
      }
      elements.step = part.step / size;
      elements.source = {source.offset + part.from, part.bytes, source.pitch, source.rows};
      elements.piece = {piece.offset + part.from, part.bytes, piece.pitch, piece.rows};
      const index_t node = mesh_.node(state_->node.rank);
      const std::optional<Nodes> nodes = read ? Nodes{node, node + 1} : inputs_.add_alike(sum, elements);
      if (!nodes) return false;
      append(sum, next, elements, *nodes);
    }
    return true;
  }

  // Partial sums of one row, which is number `row` of those that `columns` are.
  void add_row(const SumOp& sum, std::span<const Part> columns, index_t row, index_t source, index_t piece) {
    row_.clear();
    index_t next = 0;
    for (const Part& part : columns) {
      for (index_t done = 0; done < part.bytes;) {
        const index_t left = (part.bytes - done) / sum.input_bytes();
        Elements elements = inputs_.elements_of(part.row(row).from(done), left);
        const bool known = elements.count > 0;  // else of no element, or cut in the middle of one
        if (!known) elements.count = left;
        const index_t bytes = elements.count * sum.input_bytes();
        elements.source = {source + part.from + done, bytes};
        elements.piece = {piece + part.from + done, bytes};
        append(sum, next, elements, inputs_.add(sum, elements));
        if (!known) break;
        done += bytes;
      }
    }
    if (row_.empty()) append(sum, next, {}, {});
  }

  // Appends the sum over some nodes of elements to `row_`, at byte `next`; of no nodes it is nothing.
  void append(const SumOp& sum, index_t& next, const Elements& elements, Nodes nodes) {
    ByteContent content;
    if (nodes.any()) {
      const index_t number = state_->pieces.elements_before(elements.parameter) + elements.first;
      content =
          ByteContent::partial(number * sum.output_bytes(), nodes.first, nodes.last, state_->run(), sum.kernel.output);
    }
    next = ReplayState::append(row_, next, elements.count * sum.output_bytes(), state_->now, content,
                               elements.step * sum.output_bytes());
  }

  ReplayState* state_;
  MeshShape mesh_;
  ReplayInputs inputs_;
  SumBatch batch_;
  std::vector<Part> parts_;  // what the own input is
  std::vector<Column> row_;  // what the row that is being written holds
};

}  // namespace tide::detail
