// SPDX-License-Identifier: Apache-2.0
//
// What can be said of an op alone: law 6, and that its kernel is the one that the collective asks for.

#pragma once

#include <tide/plan/detail/op_rows.hpp>        // OpRows
#include <tide/plan/detail/piece_table.hpp>    // PieceTable
#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <span>
#include <string>

namespace tide {

/// How many rows `verify` follows in one run of all plans (of copies times their targets, of sums times their inputs);
/// more is a violation of bounds. It keeps a file with absurd numbers from taking all time and memory.
inline constexpr index_t most_rows = index_t{1} << 27;

namespace detail {

class OpCheck {
 public:
  OpCheck(const Collective& collective, const PieceTable& pieces, VerifyReport& report)
      : collective_(&collective), pieces_(&pieces), report_(&report) {}

  void check(std::span<const Plan> plans) {
    for (std::size_t p = 0; p < plans.size(); ++p) {
      for (std::size_t s = 0; s < plans[p].ops.size(); ++s) check(plans[p], p, s);
    }
    if (rows_ > most_rows) {
      report_->add(Law::bounds,
                   "the plans move more than " + std::to_string(most_rows) + " rows in a run; verify follows no more");
    }
  }

 private:
  void check(const Plan& plan, std::size_t p, std::size_t s) {
    const Op& op = plan.ops[s];
    side_ = report_->side(p, s);
    const Rank rank = side_.rank;
    if (op.kind > OpKind::cast) return fault("is of a kind that does not exist");
    if (op.lane >= plan.lanes.size()) return fault("is on a lane that the plan does not have");
    const bool position = op.kind == OpKind::reduce;
    if (op.peer < 0 || op.peer >= (position ? mesh().ranks_per_node : mesh().ranks())) {
      return fault((position ? "adds its own gradient in position " : "names rank ") + std::to_string(op.peer) +
                   ", which does not exist");
    }
    switch (op.kind) {
      case OpKind::signal:
      case OpKind::wait:
        return check_word(op);
      case OpKind::copy:
        if (mesh().node(Rank{op.peer}) != mesh().node(rank))
          return fault("goes to a rank of another node; that takes a put");
        break;
      case OpKind::put:
        if (mesh().node(Rank{op.peer}) == mesh().node(rank))
          return fault("goes to a rank of the same node; that takes a copy");
        break;
      case OpKind::reduce:
      case OpKind::cast:
        if (!check_kernel(op)) return;
        break;
      case OpKind::multicast:
        break;
    }
    check_memory(op, rank);
  }

  void check_word(const Op& op) {
    if (op.target.space != Space::signals || op.target_offset < 0 || op.target_offset % 8 != 0 ||
        op.target_offset >= collective_->words().bytes()) {
      fault("names " + checked_name(op.target.space) + " byte " + std::to_string(op.target_offset) +
            ", where no word is");
    }
  }

  [[nodiscard]] bool check_kernel(const Op& op) {
    const bool sum = op.kind == OpKind::reduce;
    if (op.kernel >= collective_->kernels.size()) {
      fault("names kernel " + std::to_string(op.kernel) + ", which the collective does not have");
      return false;
    }
    const Kernel& kernel = kernel_of(op, *collective_);
    if (kernel.kind != (sum ? Kernel::Kind::sum : Kernel::Kind::cast) || size_bytes(kernel.input) == 0 ||
        size_bytes(kernel.output) == 0) {
      fault("names kernel " + std::to_string(op.kernel) + ", which does something else");
      return false;
    }
    if (sum && (kernel.inputs != mesh().ranks_per_node || kernel.finish != collective_->finish ||
                kernel.output != Element::f32)) {
      report_->add(Law::sum,
                   report_->who(side_) + " adds " + std::to_string(kernel.inputs) + " inputs by kernel " +
                       std::to_string(op.kernel) + "; the collective needs " + std::to_string(mesh().ranks_per_node) +
                       " inputs, an f32 output and its own finish",
                   side_);
      return false;
    }
    return true;
  }

  void check_memory(const Op& op, Rank rank) {
    const bool typed = op.kind == OpKind::reduce || op.kind == OpKind::cast;
    const index_t input = typed ? static_cast<index_t>(size_bytes(kernel_of(op, *collective_).input)) : 1;
    const index_t output = typed ? static_cast<index_t>(size_bytes(kernel_of(op, *collective_).output)) : 1;
    const OpRows target = target_rows(op, *collective_);
    bool good = check_rows("reads", rank, op.source, source_rows(op), input);
    const bool all = op.kind == OpKind::multicast;
    const index_t node = mesh().node(rank);
    for (index_t local = 0; good && local < (all ? mesh().ranks_per_node : 1); ++local) {
      const Rank owner = all ? mesh().rank(node, local) : typed ? rank : Rank{op.peer};
      good = check_target(op) && check_rows("writes", owner, op.target, target, output);
      if (good && op.rows > 1 && target.pitch < target.width) {
        fault("writes rows of " + std::to_string(target.width) + " bytes that are " + std::to_string(target.pitch) +
              " bytes apart");
        good = false;
      }
    }
    const index_t pieces = op.kind == OpKind::reduce ? collective_->inbox.pieces : 0;
    if (good && pieces > 0) good = check_pieces(op, rank, pieces, input);
    const index_t runs = target.dense() && source_rows(op).dense() ? 1 : static_cast<index_t>(op.rows);
    rows_ = std::min(rows_ + runs * (all ? mesh().ranks_per_node : 1 + pieces), most_rows + 1);
  }

  [[nodiscard]] bool check_pieces(const Op& op, Rank rank, index_t pieces, index_t input) {
    if (op.extra.space != Space::inbox) {
      fault("adds pieces of space " + checked_name(op.extra.space) + "; they lie in the inbox");
      return false;
    }
    OpRows rows = piece_rows(op, *collective_);
    if (!check_rows("reads", rank, op.extra, rows, input)) return false;
    const index_t distance = collective_->inbox.piece_bytes();
    if (distance % input != 0) {
      fault("adds pieces that are " + std::to_string(distance) + " bytes apart, not a multiple of its elements");
      return false;
    }
    rows.offset += (pieces - 1) * distance;
    return check_rows("reads", rank, op.extra, rows, input);
  }

  [[nodiscard]] bool check_target(const Op& op) {
    const Space space = op.target.space;
    const bool allowed = op.kind == OpKind::reduce ? space == Space::output
                         : op.kind == OpKind::put  ? space == Space::network_inbox
                         : op.kind == OpKind::cast ? space == Space::slot
                                                   : space == Space::slot || space == Space::inbox;
    if (!allowed) fault("may not write to space " + checked_name(space));
    return allowed;
  }

  // Whether all rows lie inside the memory that they name, at multiples of the element.
  [[nodiscard]] bool check_rows(const char* verb, Rank owner, Place place, const OpRows& rows, index_t element) {
    const index_t end = rows.end();
    ByteRange& bytes = side_.bytes;
    bytes = {owner, place, rows.offset, end < 0 ? INT64_MAX : end};
    const std::string access = std::string(verb) + " ";
    if (rows.width <= 0 || rows.rows <= 0 || rows.pitch < 0) {
      fault(access + "no bytes, or rows that make no sense");
      return false;
    }
    if (place.space > Space::output) {
      fault(access + "space " + checked_name(place.space) + ", which no op may move");
      return false;
    }
    if (place.parameter >= pieces_->parameters()) {
      fault(access + "bytes of parameter " + std::to_string(place.parameter) + ", which the group does not have");
      return false;
    }
    if (place.instance >= collective_->space_instances(place.space)) {
      fault(access + checked_name(place.space) + " " + std::to_string(place.instance) + ", of which there are " +
            std::to_string(collective_->space_instances(place.space)));
      return false;
    }
    if (end < 0 || end > pieces_->bytes(owner, place.space)) {
      fault(access + report_->what(bytes) + ", which has " + std::to_string(pieces_->bytes(owner, place.space)) +
            " bytes");
      return false;
    }
    if (place.space == Space::gradients && collective_->gradients == GradientSource::table) {
      const auto parameter = pieces_->dense(Buffer::gradients, place.parameter);
      if (rows.offset < parameter.begin || end > parameter.end) {
        fault(access + report_->what(bytes) + ", which lies in [" + std::to_string(parameter.begin) + ", " +
              std::to_string(parameter.end) + "), behind a pointer of its own");
        return false;
      }
    }
    if (rows.offset % element != 0 || rows.width % element != 0 || (rows.rows > 1 && rows.pitch % element != 0)) {
      fault(access + report_->what(bytes) + ", not aligned to elements of " + std::to_string(element) + " bytes");
      return false;
    }
    return true;
  }

  void fault(const std::string& text) { report_->add(Law::bounds, report_->who(side_) + " " + text, side_); }

  [[nodiscard]] MeshShape mesh() const noexcept { return collective_->layout.mesh; }

  const Collective* collective_;
  const PieceTable* pieces_;
  VerifyReport* report_;
  Side side_{};
  index_t rows_ = 0;
};

}  // namespace detail
}  // namespace tide
