// SPDX-License-Identifier: Apache-2.0
//
// What a sum adds, read and judged: gradients of the ranks in their order, or sums over nodes of the same elements
// where the tree of reduce/tree.hpp adds them; in the switch each node once.

#pragma once

#include <tide/plan/detail/op_rows.hpp>       // OpRows, adds_local_ranks
#include <tide/plan/detail/replay_state.hpp>  // ReplayState

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace tide::detail {

// An op that sums.
struct SumOp {
  const Op& op;
  const Kernel& kernel;
  bool local;
  bool in_switch;

  [[nodiscard]] index_t input_bytes() const noexcept { return static_cast<index_t>(size_bytes(kernel.input)); }
  [[nodiscard]] index_t output_bytes() const noexcept { return static_cast<index_t>(size_bytes(kernel.output)); }
};

class ReplayInputs {
 public:
  // Elements of one parameter, in one row or several, and where the own input and the first piece hold them.
  struct Elements {
    index_t parameter = 0;
    index_t first = -1;  // in the parameter, of the first row
    index_t count = 0;   // of a row
    index_t step = 0;    // from row to row
    OpRows source{};
    OpRows piece{};
  };

  // Nodes [first, last).
  struct Nodes {
    index_t first = 0;
    index_t last = 0;

    [[nodiscard]] bool any() const noexcept { return first < last; }
    [[nodiscard]] friend bool operator==(const Nodes&, const Nodes&) = default;
    [[nodiscard]] std::string text() const { return "[" + std::to_string(first) + ", " + std::to_string(last) + ")"; }
  };

  explicit ReplayInputs(ReplayState& state) : state_(&state), mesh_(state.collective.layout.mesh) {}

  // The elements that some content begins with, at most `most`, of one parameter; none where it is of no element.
  [[nodiscard]] Elements elements_of(const ByteContent& content, index_t most) const {
    if (content.kind == ByteContent::Kind::partial) {
      const auto size = static_cast<index_t>(size_bytes(content.element));
      if (content.offset % size != 0) return {};
      const index_t number = content.offset / size;
      const index_t p = state_->pieces.parameter_of_element(number);
      const index_t first = number - state_->pieces.elements_before(p);
      return {p, first, std::min(most, state_->pieces.elements_before(p + 1) - number)};
    }
    if (content.kind != ByteContent::Kind::gradient) return {};
    const index_t p = state_->pieces.parameter_at(Rank{0}, Buffer::gradients, content.offset);
    const PieceTable::Range range = state_->pieces.dense(Buffer::gradients, p);
    const index_t size = gradient_bytes(p);
    if ((content.offset - range.begin) % size != 0 || content.offset >= range.end) return {};
    return {p, (content.offset - range.begin) / size, std::min(most, (range.end - content.offset) / size)};
  }

  // Of an element of a parameter, as some content holds it.
  [[nodiscard]] index_t element_bytes(const ByteContent& content, index_t parameter) const {
    return content.kind == ByteContent::Kind::partial ? static_cast<index_t>(size_bytes(content.element))
                                                      : gradient_bytes(parameter);
  }

  // Reads and judges what a sum adds for some elements, in the order of the tree; returns the nodes that it is over,
  // none where it is no sum along the tree. Elements before the first of a parameter are none: everything is wrong.
  Nodes add(const SumOp& sum, const Elements& elements) {
    const Rank rank = state_->node.rank;
    const index_t distance = piece_spacing(sum.op, state_->collective).piece_bytes;
    const MemoryRegion source{rank, sum.op.source.space, sum.op.source.instance};
    const MemoryRegion pieces{rank, sum.op.extra.space, sum.op.extra.instance};
    if (sum.in_switch) return add_in_switch(sum, elements);
    if (sum.local || mesh_.ranks_per_node == 1) check_kernel(sum, source, elements);
    OpRows piece = elements.piece;
    if (sum.local) {
      read_gradient(source, elements.source, rank, elements);
      for (index_t i = 0; i + 1 < sum.kernel.inputs; ++i) {
        const index_t local = i < mesh_.local(rank) ? i : i + 1;
        read_gradient(pieces, piece, mesh_.rank(mesh_.node(rank), local), elements);
        piece.offset += distance;
      }
      const index_t node = mesh_.node(rank);
      return {node, node + 1};
    }
    inputs_.clear();
    for (index_t i = 0; i < sum.kernel.inputs; ++i) {
      const bool own = i == sum.op.peer;
      const std::optional<Nodes> input = read_sum(sum, own ? source : pieces, own ? elements.source : piece, elements);
      if (!own) piece.offset += distance;
      if (!input) return {};
      inputs_.push_back(*input);
    }
    if (along_tree(inputs_, 0, inputs_.size())) return {inputs_.front().first, inputs_.back().last};
    blame_nodes(source, elements, "where the tree does not");
    return {};
  }

  // The same for several rows; nothing where they are not alike, or not right.
  std::optional<Nodes> add_alike(const SumOp& sum, const Elements& elements) {
    uneven_ = false;
    const Nodes nodes = add(sum, elements);
    return uneven_ ? std::nullopt : std::optional(nodes);
  }

 private:
  // Says what is wrong with a row; of several rows only that something is.
  template <class Text>
  void blame(const MemoryRegion& region, const Elements& elements, index_t begin, index_t end, Text text) {
    if (elements.source.rows > 1) {
      uneven_ = true;
    } else {
      state_->blame(Law::sum, region, begin, end, text, ParameterIndex{elements.parameter});
    }
  }

  // The same for what a switch adds: the sums of all places, whose nodes must be one range, each of them once.
  Nodes add_in_switch(const SumOp& sum, const Elements& elements) {
    const Rank rank = state_->node.rank;
    const index_t distance = piece_spacing(sum.op, state_->collective).piece_bytes;
    inputs_.clear();
    for (index_t i = 0; i < sum.kernel.inputs; ++i) {
      const Place place = i == 0 ? sum.op.source : sum.op.extra;
      OpRows rows = i == 0 ? elements.source : elements.piece;
      if (i > 0) rows.offset += (i - 1) * distance;
      for (index_t local = 0; local < mesh_.ranks_per_node; ++local) {
        const MemoryRegion from{mesh_.rank(mesh_.node(rank), local), place.space, place.instance};
        const std::optional<Nodes> input = read_sum(sum, from, rows, elements);
        if (!input) return {};
        if (input->any()) inputs_.push_back(*input);
      }
    }
    std::sort(inputs_.begin(), inputs_.end(), [](const Nodes& a, const Nodes& b) { return a.first < b.first; });
    bool once = !inputs_.empty();
    for (std::size_t i = 1; i < inputs_.size(); ++i) once = once && inputs_[i - 1].last == inputs_[i].first;
    if (once) return {inputs_.front().first, inputs_.back().last};
    blame_nodes({rank, sum.op.source.space, sum.op.source.instance}, elements, "not each node once");
    return {};
  }

  void blame_nodes(const MemoryRegion& source, const Elements& elements, const char* why) {
    const OpRows& rows = elements.source;
    blame(source, elements, rows.offset, rows.offset + rows.width, [&](const Side& side) {
      std::string text = " adds " + state_->faults.what(side) + ", " + why + ": the sums are over";
      for (const Nodes& nodes : inputs_) text += " " + nodes.text();
      return text;
    });
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

  void check_kernel(const SumOp& sum, const MemoryRegion& source, const Elements& elements) {
    const bool gradients = sum.op.source.space == Space::gradients;
    const Element wanted = state_->pieces.layout().group[ParameterIndex{elements.parameter}].gradient;
    if (!gradients || sum.kernel.input == wanted) return;
    const OpRows& rows = elements.source;
    blame(source, elements, rows.offset, rows.offset + rows.width,
          [&](const Side& side) { return " adds " + state_->faults.what(side) + " by a kernel for another element"; });
  }

  // Whether a part of rows that begin with what is at `offset`, in steps of `step`, is what belongs there.
  [[nodiscard]] static bool in_place(const Part& part, index_t offset, index_t step) noexcept {
    return part.content.offset == offset + part.first * step + part.from && (part.rows == 1 || part.step == step);
  }

  void read_gradient(const MemoryRegion& from, const OpRows& rows, Rank rank, const Elements& elements) {
    const index_t belongs = elements.first < 0 ? -1 : gradient_offset(elements);
    const index_t step = elements.step * gradient_bytes(elements.parameter);
    state_->memory.read(from, rows, [&](const Part& part) {
      const ByteContent& content = part.content;
      if (belongs >= 0 && content.kind == ByteContent::Kind::gradient && content.rank == rank.value &&
          content.run == state_->run() && in_place(part, belongs, step)) {
        return true;
      }
      const index_t begin = rows.begin(part.first) + part.from;
      blame(from, elements, begin, begin + part.bytes, [&](const Side& side) {
        const index_t wanted = belongs + part.from;
        return " adds " + state_->faults.what(side) + ", where the gradient of rank " + std::to_string(rank.value) +
               ", bytes [" + std::to_string(wanted) + ", " + std::to_string(wanted + part.bytes) +
               "), should be; there is " + name_of(content, part.bytes);
      });
      return false;
    });
  }

  // Reads an input that is a sum over nodes; returns which, nothing where it is another thing. Zeros that a switch adds
  // are over none.
  std::optional<Nodes> read_sum(const SumOp& sum, const MemoryRegion& from, const OpRows& rows,
                                const Elements& elements) {
    Nodes nodes;
    bool zeros = false;
    bool good = elements.first >= 0;
    state_->memory.read(from, rows, [&](const Part& part) {
      const Nodes held = nodes_of(sum, part, elements);
      const bool zero = sum.in_switch && part.content.kind == ByteContent::Kind::zeros;
      if (part.first == 0 && part.from == 0) {
        nodes = held;
        zeros = zero;
      }
      good = good && (held.any() || zero) && zero == zeros && held == nodes;
      if (good) return true;
      const index_t begin = rows.begin(part.first) + part.from;
      blame(from, elements, begin, begin + part.bytes, [&](const Side& side) {
        return " adds " + state_->faults.what(side) + ", where a sum of the same elements should be; there is " +
               name_of(part.content, part.bytes);
      });
      return false;
    });
    return good ? std::optional(nodes) : std::nullopt;
  }

  // The nodes that a part is a sum over, if it is of the elements, in this run.
  [[nodiscard]] Nodes nodes_of(const SumOp& sum, const Part& part, const Elements& elements) const {
    const ByteContent& content = part.content;
    if (elements.first < 0 || content.run != state_->run()) return {};
    if (content.kind == ByteContent::Kind::gradient && mesh_.ranks_per_node == 1) {
      const index_t size = gradient_bytes(elements.parameter);
      const bool right = in_place(part, gradient_offset(elements), elements.step * size) &&
                         sum.kernel.input == state_->pieces.layout().group[ParameterIndex{elements.parameter}].gradient;
      return right ? Nodes{content.rank, content.rank + 1} : Nodes{};
    }
    const index_t number = state_->pieces.elements_before(elements.parameter) + elements.first;
    const bool right = content.kind == ByteContent::Kind::partial && content.element == sum.kernel.input &&
                       in_place(part, number * sum.input_bytes(), elements.step * sum.input_bytes());
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
  std::vector<Nodes> inputs_;  // of the sum that is being made
  bool uneven_ = false;        // whether something is wrong with a row of several
};

}  // namespace tide::detail
