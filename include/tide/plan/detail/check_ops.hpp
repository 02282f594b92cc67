// SPDX-License-Identifier: Apache-2.0
//
// What can be said of an op alone: law 6, and that its kernel is the one that the collective asks for.

#pragma once

#include <tide/core/math.hpp>                  // checked_product
#include <tide/plan/detail/flat_table.hpp>     // FlatTable
#include <tide/plan/detail/op_rows.hpp>        // OpRows
#include <tide/plan/detail/piece_table.hpp>    // PieceTable
#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tide::detail {

class OpCheck {
 public:
  OpCheck(const Collective& collective, const PieceTable& pieces, VerifyReport& report)
      : collective_(&collective), pieces_(&pieces), report_(&report) {}

  // @param most  how many rows are followed in a run
  void check(std::span<const Plan> plans, index_t most) {
    most_ = most;
    for (const Parameter& parameter : collective_->layout.group.parameters) {
      if (parameter.shape.elements() == 0) continue;
      const index_t rows = parameter.shape.product(0, parameter.sharding.dimension);
      rows_ = std::min(rows_ + std::min(rows, most_) * mesh().ranks(), most_ + 1);
    }
    for (std::size_t p = 0; p < plans.size(); ++p) {
      net_lane_ = {};
      for (std::size_t s = 0; s < plans[p].ops.size(); ++s) check(plans[p], p, s);
    }
    if (rows_ > most_) report_->add_too_many_rows(most_);
  }

 private:
  void check(const Plan& plan, std::size_t p, std::size_t s) {
    const Op& op = plan.ops[s];
    side_ = report_->bare(p, s);
    const Rank rank = side_.rank;
    if (op.kind > OpKind::cast) return fault("is of a kind that does not exist");
    if (op.lane >= plan.lanes.size()) return fault("is on a lane that the plan does not have");
    const bool position = op.kind == OpKind::reduce;
    if (op.peer < 0 || op.peer >= (position && mesh().nodes == 1 ? mesh().ranks_per_node : mesh().ranks())) {
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
        if (!check_put(op, rank)) return;
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

  void check_word(const Op& op) { static_cast<void>(check_word(op.target, op.target_offset)); }

  [[nodiscard]] bool check_word(Place place, index_t offset) {
    const bool good =
        place.space == Space::signals && offset >= 0 && offset % 8 == 0 && offset < collective_->words().bytes();
    if (!good) fault("names " + checked_name(place.space) + " byte " + std::to_string(offset) + ", where no word is");
    return good;
  }

  // What a put has beside its memory: a peer on another node, one row, a word, and one lane for all that goes to a
  // peer.
  [[nodiscard]] bool check_put(const Op& op, Rank rank) {
    const auto refuse = [&](const std::string& text) {
      fault(text);
      return false;
    };
    if (mesh().node(Rank{op.peer}) == mesh().node(rank)) {
      return refuse("goes to a rank of the same node; that takes a copy");
    }
    if (op.rows != 1) return refuse("has " + std::to_string(op.rows) + " rows; a put is contiguous");
    if (collective_->network.puts_in_flight < 1) return refuse("may not be in flight: the collective allows no put");
    const std::uint16_t lane = net_lane_.at(static_cast<std::uint64_t>(op.peer), op.lane);
    if (lane != op.lane) {
      return refuse("goes to rank " + std::to_string(op.peer) + ", as puts of " +
                    report_->lane(static_cast<std::size_t>(rank.value), lane) +
                    " do; all puts to a rank are on one lane");
    }
    const Space space = op.source.space;
    if (space != Space::shards && space != Space::network_inbox && space != Space::partials &&
        space != Space::gradients && !(space == Space::inbox && sums_in_slot())) {
      return refuse("may not be put from space " + checked_name(space));
    }
    return check_word(op.extra, op.extra_offset);
  }

  [[nodiscard]] bool check_kernel(const Op& op) {
    const bool sum = op.kind == OpKind::reduce;
    if (op.kernel >= collective_->kernels.size()) {
      fault("names kernel " + std::to_string(op.kernel) + ", which the collective does not have");
      return false;
    }
    const Kernel& kernel = kernel_of(op, *collective_);
    if (kernel.kind > Kernel::Kind::switch_sum || sum == (kernel.kind == Kernel::Kind::cast) ||
        size_bytes(kernel.input) == 0 || size_bytes(kernel.output) == 0) {
      fault("names kernel " + std::to_string(op.kernel) + ", which does something else");
      return false;
    }
    if (kernel.kind == Kernel::Kind::switch_sum) return check_switch_sum(op, kernel);
    return !sum || check_sum(op, kernel);
  }

  // Whether a sum in the switch is of places of the network inbox, and makes a part of the output.
  [[nodiscard]] bool check_switch_sum(const Op& op, const Kernel& kernel) {
    const bool known = collective_->network.exchange == Exchange::in_switch && kernel.inputs >= 1 &&
                       kernel.input == Element::f32 && kernel.output == Element::f32 &&
                       kernel.finish == collective_->finish;
    const bool placed = op.source.space == Space::network_inbox && op.target.space == Space::output && op.peer == 0 &&
                        (kernel.inputs == 1 || op.extra.space == Space::network_inbox);
    if (!known) fault("names kernel " + std::to_string(op.kernel) + ", which the collective has no use for");
    if (known && !placed) fault("adds in the switch what is no place of the network inbox, or to what is no output");
    return known && placed;
  }

  // Whether a sum has as many inputs, and ends, as its place in the collective asks for.
  [[nodiscard]] bool check_sum(const Op& op, const Kernel& kernel) {
    const MeshShape mesh = this->mesh();
    const bool local = adds_local_ranks(op, mesh);
    const bool partial =
        mesh.nodes > 1 && (op.target.space == Space::partials || (op.target.space == Space::inbox && sums_in_slot()) ||
                           is_place_of_switch(op.target.space));
    const index_t most = local ? mesh.ranks_per_node : mesh.nodes;
    const bool counted = local ? kernel.inputs == most : kernel.inputs >= 1 && kernel.inputs <= most;
    const bool ends = partial ? kernel.finish == Finish::partial
                              : kernel.finish == collective_->finish && kernel.output == Element::f32;
    if (counted && ends) {
      if (op.peer < kernel.inputs) return true;
      fault("adds its own input in position " + std::to_string(op.peer) + " of " + std::to_string(kernel.inputs));
      return false;
    }
    const std::string wanted = (local ? "" : "up to ") + std::to_string(most) + " inputs";
    report_->add(Law::sum,
                 report_->who(side_) + " adds " + std::to_string(kernel.inputs) + " inputs by kernel " +
                     std::to_string(op.kernel) + "; the collective needs " + wanted +
                     (partial ? " and a partial finish" : ", an f32 output and its own finish") + reading(with_bytes()),
                 with_bytes());
    return false;
  }

  void check_memory(const Op& op, Rank rank) {
    const bool typed = op.kind == OpKind::reduce || op.kind == OpKind::cast;
    const index_t input = typed ? static_cast<index_t>(size_bytes(kernel_of(op, *collective_).input)) : 1;
    const index_t output = typed ? static_cast<index_t>(size_bytes(kernel_of(op, *collective_).output)) : 1;
    const OpRows target = target_rows(op, *collective_);
    const bool all = op.kind == OpKind::multicast;
    const bool in_switch = adds_in_switch(op, *collective_);
    const index_t node = mesh().node(rank);
    const index_t pieces = op.kind == OpKind::reduce ? kernel_of(op, *collective_).inputs - 1 : 0;
    bool good = true;
    for (index_t local = 0; good && local < (in_switch ? mesh().ranks_per_node : 1); ++local) {
      const Rank source = in_switch ? mesh().rank(node, local) : rank;
      good = check_rows("reads", source, op.source, source_rows(op), input) &&
             (pieces == 0 || check_pieces(op, source, pieces, input));
    }
    for (index_t local = 0; good && local < (all ? mesh().ranks_per_node : 1); ++local) {
      const Rank owner = all ? mesh().rank(node, local) : typed ? rank : Rank{op.peer};
      good = check_target(op) && check_rows("writes", owner, op.target, target, output);
      if (good && op.rows > 1 && target.pitch < target.width) {
        fault("writes rows of " + std::to_string(target.width) + " bytes that are " + std::to_string(target.pitch) +
              " bytes apart");
        good = false;
      }
    }
    if (!good) return;  // and its numbers may be any
    // Rows that lie alike may be one for the replay, which counts what it has to follow; of one op not even it takes
    // all.
    const index_t places = (all || in_switch ? mesh().ranks_per_node : 1) * (1 + pieces);
    const bool dense = target.dense() && source_rows(op).dense();
    const index_t rows = checked_product(dense ? 1 : static_cast<index_t>(op.rows), places);
    rows_ = rows < 0 || rows > most_ ? most_ + 1 : std::min(rows_ + places, most_ + 1);
  }

  [[nodiscard]] bool check_pieces(const Op& op, Rank rank, index_t pieces, index_t input) {
    const bool local = adds_local_ranks(op, mesh());
    const Space space = op.extra.space;
    if (local ? space != Space::inbox : space != Space::network_inbox && space != Space::partials) {
      fault("adds pieces of space " + checked_name(space) +
            (local ? "; they lie in the inbox" : "; they lie in the network inbox or among the partials"));
      return false;
    }
    OpRows rows = piece_rows(op, *collective_);
    if (!check_rows("reads", rank, op.extra, rows, input)) return false;
    const index_t distance = piece_spacing(op, *collective_).piece_bytes;
    if (distance % input != 0) {
      fault("adds pieces that are " + std::to_string(distance) + " bytes apart, not a multiple of its elements");
      return false;
    }
    const index_t span = checked_product(pieces - 1, distance);
    if (span < 0 || rows.offset > INT64_MAX - span) {
      fault("adds pieces that no memory holds");
      return false;
    }
    rows.offset += span;
    return check_rows("reads", rank, op.extra, rows, input);
  }

  [[nodiscard]] bool check_target(const Op& op) {
    const Space space = op.target.space;
    const bool nodes = mesh().nodes > 1;
    const bool own = op.peer == side_.rank.value;
    const bool packed = nodes && space == Space::shards && !collective_->gives_shards();
    const bool partials = nodes && space == Space::partials;
    bool allowed = false;
    switch (op.kind) {
      case OpKind::reduce:
        allowed = space == Space::output || partials || (space == Space::inbox && sums_in_slot()) ||
                  is_place_of_switch(space);
        break;
      case OpKind::put:
        allowed = space == Space::network_inbox;
        break;
      case OpKind::cast:
        allowed = space == Space::slot;
        break;
      case OpKind::copy:
        allowed = space == Space::slot || space == Space::inbox || (own && (packed || partials));
        break;
      default:
        allowed = space == Space::slot || space == Space::inbox;
    }
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

  void fault(const std::string& text) {
    const Side side = with_bytes();
    report_->add(Law::bounds, report_->who(side) + " " + text + reading(side), side);
  }

  // "; it reads slot bytes [0, 512) of 'w' of rank 2", where no bytes are at fault and there are some.
  [[nodiscard]] std::string reading(const Side& side) const {
    return side_.bytes.empty() && !side.bytes.empty() ? "; it reads " + report_->what(side.bytes) : std::string();
  }

  // The op with the bytes that are at fault or, where none are, with those that it reads.
  [[nodiscard]] Side with_bytes() const {
    Side side = side_;
    const OpRows rows = source_rows(side.op);
    if (side.op.moves() && side.bytes.empty()) side.bytes = {side.rank, side.op.source, rows.offset, rows.end()};
    return side;
  }

  // Whether sums of a node lie in the slot that its pieces lay in.
  [[nodiscard]] bool sums_in_slot() const noexcept { return mesh().nodes > 1 && collective_->inbox.slot_bytes > 0; }

  // Whether sums of a node may be written where its switch adds them.
  [[nodiscard]] bool is_place_of_switch(Space space) const noexcept {
    return space == Space::network_inbox && collective_->network.exchange == Exchange::in_switch;
  }

  [[nodiscard]] MeshShape mesh() const noexcept { return collective_->layout.mesh; }

  const Collective* collective_;
  const PieceTable* pieces_;
  VerifyReport* report_;
  Side side_{};
  FlatTable<std::uint16_t> net_lane_;  // of the plan that is being checked: the lane of the puts to each rank
  index_t most_ = 0;
  index_t rows_ = 0;  // that are followed at least
};

}  // namespace tide::detail
