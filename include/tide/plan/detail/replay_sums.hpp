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

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace tide::detail {

class SumReplay {
 public:
  explicit SumReplay(ReplayState& state) : state_(&state), mesh_(state.collective.layout.mesh) {}

  void reduce(const Op& op) {
    const Sum sum{op, kernel_of(op, state_->collective), adds_local_ranks(op, mesh_),
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
    for (index_t row = 0; row < target.rows; ++row) {
      const index_t at = target.begin(row);
      row_.clear();
      if (op.target.space == Space::output) {
        write_output(sum, at, target.width, source.begin(row), piece.begin(row));
      } else {
        write_partial(sum, at, source.begin(row), source.width, piece.begin(row));
      }
      // A sum may replace its own input: each element is read before it is written.
      const bool same = op.source.space == op.target.space && op.source.instance == op.target.instance &&
                        source.begin(row) == at && source.width == target.width &&
                        sum.input_bytes() == sum.output_bytes();
      state_->write(to, at, at + target.width, row_, ParameterIndex{op.target.parameter}, same);
    }
  }

 private:
  struct Sum {
    const Op& op;
    const Kernel& kernel;
    bool local;
    bool in_switch;

    [[nodiscard]] index_t input_bytes() const noexcept { return static_cast<index_t>(size_bytes(kernel.input)); }
    [[nodiscard]] index_t output_bytes() const noexcept { return static_cast<index_t>(size_bytes(kernel.output)); }
  };

  // Elements of one parameter, and where the own input and the first piece hold them.
  struct Elements {
    index_t parameter;
    index_t first;  // in the parameter
    index_t count;
    index_t source;
    index_t piece;
  };

  // Nodes [first, last).
  struct Nodes {
    index_t first = 0;
    index_t last = 0;

    [[nodiscard]] bool any() const noexcept { return first < last; }
    [[nodiscard]] friend bool operator==(const Nodes&, const Nodes&) = default;
    [[nodiscard]] std::string text() const { return "[" + std::to_string(first) + ", " + std::to_string(last) + ")"; }
  };

  // A row of the output: the layout says which elements it has to be.
  void write_output(const Sum& sum, index_t at, index_t bytes, index_t source, index_t piece) {
    const MemoryRegion output{state_->node.rank, Space::output, 0};
    state_->pieces.for_each_run(
        state_->node.rank, Buffer::output, at, at + bytes,
        [&](const Piece& run, index_t begin, index_t count, index_t element) {
          // In elements from the start of the row, so that dense output rows may be runs of several parameters.
          const index_t skip = (begin - at) / 4 * sum.input_bytes();
          const Nodes nodes = add(sum, {run.parameter.value, element, count, source + skip, piece + skip});
          if (!nodes.any() || (nodes.first == 0 && nodes.last == mesh_.nodes)) return;
          state_->blame(Law::sum, output, begin, begin + 4 * count, [&](const Side& side) {
            return " writes " + state_->faults.what(side) + " with the sum over nodes " + nodes.text() + " of " +
                   std::to_string(mesh_.nodes);
          });
        });
    const ByteContent content{at, -1, ByteContent::Kind::sum, state_->run()};
    row_.push_back({at, state_->now, UINT32_MAX, content});
  }

  // A row of partial sums: it is of the elements that the own input is of.
  void write_partial(const Sum& sum, index_t at, index_t source, index_t bytes, index_t piece) {
    struct Run {
      ByteContent content;
      index_t begin;
      index_t end;
    };
    std::vector<Run> runs;
    state_->memory.look({state_->node.rank, sum.op.source.space, sum.op.source.instance}, source, source + bytes,
                        [&](const ByteContent& content, index_t begin, index_t end) {
                          runs.push_back({content, begin - source, end - source});
                        });
    index_t next = at;
    const auto append = [&](index_t elements, const ByteContent& content) {
      next = ReplayState::append(row_, next, elements * sum.output_bytes(), state_->now, content);
    };
    for (const Run& run : runs) {
      for (index_t done = run.begin; done < run.end;) {
        const index_t left = (run.end - done) / sum.input_bytes();
        Elements part = elements_of(run.content.from(done - run.begin), left);
        if (part.count == 0) {  // of no element, or cut in the middle of one
          append(left, {});
          add(sum, {0, -1, left, source + done, piece + done});
          break;
        }
        part.source = source + done;
        part.piece = piece + done;
        const Nodes nodes = add(sum, part);
        const index_t number = state_->pieces.elements_before(part.parameter) + part.first;
        append(part.count, nodes.any() ? ByteContent::partial(number * sum.output_bytes(), nodes.first, nodes.last,
                                                              state_->run(), sum.kernel.output)
                                       : ByteContent{});
        done += part.count * sum.input_bytes();
      }
    }
    if (row_.empty()) append(bytes / sum.input_bytes(), {});
  }

  // The elements that some content begins with, at most `most`, of one parameter; none where it is of no element.
  [[nodiscard]] Elements elements_of(const ByteContent& content, index_t most) const {
    if (content.kind == ByteContent::Kind::partial) {
      const auto size = static_cast<index_t>(size_bytes(content.element));
      if (content.offset % size != 0) return {};
      const index_t number = content.offset / size;
      const index_t p = state_->pieces.parameter_of_element(number);
      const index_t first = number - state_->pieces.elements_before(p);
      return {p, first, std::min(most, state_->pieces.elements_before(p + 1) - number), 0, 0};
    }
    if (content.kind != ByteContent::Kind::gradient) return {};
    const index_t p = state_->pieces.parameter_at(Rank{0}, Buffer::gradients, content.offset);
    const PieceTable::Range range = state_->pieces.dense(Buffer::gradients, p);
    const index_t size = gradient_bytes(p);
    if ((content.offset - range.begin) % size != 0 || content.offset >= range.end) return {};
    return {p, (content.offset - range.begin) / size, std::min(most, (range.end - content.offset) / size), 0, 0};
  }

  // Reads and judges what a sum adds for some elements, in the order of the tree; returns the nodes that it is over,
  // none where it is no sum along the tree. Elements before the first of a parameter are none: everything is wrong.
  Nodes add(const Sum& sum, const Elements& elements) {
    const Rank rank = state_->node.rank;
    const index_t bytes = elements.count * sum.input_bytes();
    const index_t distance = piece_spacing(sum.op, state_->collective).piece_bytes;
    const MemoryRegion source{rank, sum.op.source.space, sum.op.source.instance};
    const MemoryRegion pieces{rank, sum.op.extra.space, sum.op.extra.instance};
    if (sum.in_switch) return add_in_switch(sum, elements);
    if (sum.local || mesh_.ranks_per_node == 1) check_kernel(sum, source, elements, bytes);
    if (sum.local) {
      read_gradient(source, elements.source, bytes, rank, elements);
      for (index_t i = 0; i + 1 < sum.kernel.inputs; ++i) {
        const index_t local = i < mesh_.local(rank) ? i : i + 1;
        read_gradient(pieces, elements.piece + i * distance, bytes, mesh_.rank(mesh_.node(rank), local), elements);
      }
      const index_t node = mesh_.node(rank);
      return {node, node + 1};
    }
    std::vector<Nodes> inputs;
    for (index_t i = 0; i < sum.kernel.inputs; ++i) {
      const bool own = i == sum.op.peer;
      const index_t piece = i < sum.op.peer ? i : i - 1;
      const std::optional<Nodes> input = read_sum(
          sum, own ? source : pieces, own ? elements.source : elements.piece + piece * distance, bytes, elements);
      if (!input) return {};
      inputs.push_back(*input);
    }
    if (along_tree(inputs, 0, inputs.size())) return {inputs.front().first, inputs.back().last};
    blame_nodes(source, elements, bytes, "where the tree does not", inputs);
    return {};
  }

  // The same for what a switch adds: the sums of all places, whose nodes must be one range, each of them once.
  Nodes add_in_switch(const Sum& sum, const Elements& elements) {
    const Rank rank = state_->node.rank;
    const index_t bytes = elements.count * sum.input_bytes();
    const index_t distance = piece_spacing(sum.op, state_->collective).piece_bytes;
    std::vector<Nodes> inputs;
    for (index_t i = 0; i < sum.kernel.inputs; ++i) {
      const Place place = i == 0 ? sum.op.source : sum.op.extra;
      const index_t begin = i == 0 ? elements.source : elements.piece + (i - 1) * distance;
      for (index_t local = 0; local < mesh_.ranks_per_node; ++local) {
        const MemoryRegion from{mesh_.rank(mesh_.node(rank), local), place.space, place.instance};
        const std::optional<Nodes> input = read_sum(sum, from, begin, bytes, elements);
        if (!input) return {};
        if (input->any()) inputs.push_back(*input);
      }
    }
    std::sort(inputs.begin(), inputs.end(), [](const Nodes& a, const Nodes& b) { return a.first < b.first; });
    bool once = !inputs.empty();
    for (std::size_t i = 1; i < inputs.size(); ++i) once = once && inputs[i - 1].last == inputs[i].first;
    if (once) return {inputs.front().first, inputs.back().last};
    const MemoryRegion source{rank, sum.op.source.space, sum.op.source.instance};
    blame_nodes(source, elements, bytes, "not each node once", inputs);
    return {};
  }

  void blame_nodes(const MemoryRegion& source, const Elements& elements, index_t bytes, const char* why,
                   const std::vector<Nodes>& inputs) {
    state_->blame(
        Law::sum, source, elements.source, elements.source + bytes,
        [&](const Side& side) {
          std::string text = " adds " + state_->faults.what(side) + ", " + why + ": the sums are over";
          for (const Nodes& nodes : inputs) text += " " + nodes.text();
          return text;
        },
        ParameterIndex{elements.parameter});
  }

  // Whether the kernel's tree over inputs [first, last) is the tree over their nodes.
  [[nodiscard]] static bool along_tree(const std::vector<Nodes>& inputs, std::size_t first, std::size_t last) {
    if (last - first == 1) return true;
    const std::size_t middle = first + static_cast<std::size_t>(power_below(static_cast<index_t>(last - first)));
    return inputs[middle - 1].last == inputs[middle].first && inputs[last - 1].last - inputs[first].first >= 2 &&
           inputs[middle].first - inputs[first].first == power_below(inputs[last - 1].last - inputs[first].first) &&
           along_tree(inputs, first, middle) && along_tree(inputs, middle, last);
  }

  [[nodiscard]] index_t gradient_bytes(index_t parameter) const {
    return static_cast<index_t>(size_bytes(state_->pieces.layout().group[ParameterIndex{parameter}].gradient));
  }

  // Where elements lie in the gradients of a rank.
  [[nodiscard]] index_t gradient_offset(const Elements& elements) const {
    return state_->pieces.dense(Buffer::gradients, elements.parameter).begin +
           elements.first * gradient_bytes(elements.parameter);
  }

  void check_kernel(const Sum& sum, const MemoryRegion& source, const Elements& elements, index_t bytes) {
    const bool gradients = sum.op.source.space == Space::gradients;
    const Element wanted = state_->pieces.layout().group[ParameterIndex{elements.parameter}].gradient;
    if (!gradients || sum.kernel.input == wanted) return;
    state_->blame(Law::sum, source, elements.source, elements.source + bytes, [&](const Side& side) {
      return " adds " + state_->faults.what(side) + " by a kernel for another element";
    });
  }

  void read_gradient(const MemoryRegion& from, index_t begin, index_t bytes, Rank rank, const Elements& elements) {
    const index_t belongs = elements.first < 0 ? -1 : gradient_offset(elements);
    state_->memory.read(from, begin, begin + bytes,
                        [&](const ByteContent& content, index_t cell_begin, index_t cell_end) {
                          const ByteContent wanted{belongs + cell_begin - begin, rank.value,
                                                   ByteContent::Kind::gradient, state_->run()};
                          if (content == wanted && belongs >= 0) return true;
                          const auto text = [&](const Side& side) {
                            return " adds " + state_->faults.what(side) + ", where the gradient of rank " +
                                   std::to_string(rank.value) + ", bytes [" + std::to_string(wanted.offset) + ", " +
                                   std::to_string(wanted.offset + cell_end - cell_begin) + "), should be; there is " +
                                   name_of(content, cell_end - cell_begin);
                          };
                          state_->blame(Law::sum, from, cell_begin, cell_end, text, ParameterIndex{elements.parameter});
                          return false;
                        });
  }

  // Reads an input that is a sum over nodes; returns which, nothing where it is another thing. Zeros that a switch adds
  // are over none.
  std::optional<Nodes> read_sum(const Sum& sum, const MemoryRegion& from, index_t begin, index_t bytes,
                                const Elements& elements) {
    Nodes nodes;
    bool zeros = false;
    bool good = elements.first >= 0;
    state_->memory.read(
        from, begin, begin + bytes, [&](const ByteContent& content, index_t cell_begin, index_t cell_end) {
          const Nodes held = nodes_of(sum, content, elements, cell_begin - begin);
          const bool zero = sum.in_switch && content.kind == ByteContent::Kind::zeros;
          if (cell_begin == begin) {
            nodes = held;
            zeros = zero;
          }
          good = good && (held.any() || zero) && zero == zeros && held == nodes;
          if (good) return true;
          const auto text = [&](const Side& side) {
            return " adds " + state_->faults.what(side) + ", where a sum of the same elements should be; there is " +
                   name_of(content, cell_end - cell_begin);
          };
          state_->blame(Law::sum, from, cell_begin, cell_end, text, ParameterIndex{elements.parameter});
          return false;
        });
    return good ? std::optional(nodes) : std::nullopt;
  }

  // The nodes that content is a sum over, if it is of the elements, `bytes` bytes behind the first, in this run.
  [[nodiscard]] Nodes nodes_of(const Sum& sum, const ByteContent& content, const Elements& elements,
                               index_t bytes) const {
    if (elements.first < 0 || content.run != state_->run()) return {};
    if (content.kind == ByteContent::Kind::gradient && mesh_.ranks_per_node == 1) {
      const bool right = content.offset == gradient_offset(elements) + bytes &&
                         sum.kernel.input == state_->pieces.layout().group[ParameterIndex{elements.parameter}].gradient;
      return right ? Nodes{content.rank, content.rank + 1} : Nodes{};
    }
    const index_t number = state_->pieces.elements_before(elements.parameter) + elements.first;
    const bool right = content.kind == ByteContent::Kind::partial && content.element == sum.kernel.input &&
                       content.offset == number * sum.input_bytes() + bytes;
    return right ? Nodes{content.first_node(), content.last_node()} : Nodes{};
  }

  [[nodiscard]] std::string name_of(const ByteContent& content, index_t bytes) const {
    const std::string run = content.run == state_->node.run ? "" : ", of another run";
    const std::string range =
        ", bytes [" + std::to_string(content.offset) + ", " + std::to_string(content.offset + bytes) + ")" + run;
    if (content.kind == ByteContent::Kind::gradient) return "that of rank " + std::to_string(content.rank) + range;
    if (content.kind == ByteContent::Kind::zeros) return "zeros";
    if (content.kind != ByteContent::Kind::partial) return "nothing of this kind";
    return "a sum over nodes " + Nodes{content.first_node(), content.last_node()}.text() + range;
  }

  ReplayState* state_;
  MeshShape mesh_;
  std::vector<Cell> row_;  // what the row that is being written holds
};

}  // namespace tide::detail
