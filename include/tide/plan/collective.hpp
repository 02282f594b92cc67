// SPDX-License-Identifier: Apache-2.0
//
// Collective: what the plans of all ranks have to achieve together. Writers turn it into plans, `verify` judges plans
// by it, fabrics bind its spaces.
//
// Test: tests/plan/collective.test.cpp

#pragma once

#include <tide/layout/layout_view.hpp>  // LayoutView
#include <tide/plan/op.hpp>             // Space
#include <tide/plan/signal_words.hpp>   // SignalWords

#include <cstdint>
#include <string_view>
#include <vector>

namespace tide {

enum class Operation : std::uint8_t { gather, reduce };

[[nodiscard]] constexpr std::string_view name(Operation operation) noexcept {
  return operation == Operation::gather ? "gather" : "reduce";
}

/// How the own block gets into the own slot of a gather.
enum class OwnBlock : std::uint8_t {
  copy,       ///< by one local copy from the packed shards; peers are served from the shards
  in_place,   ///< the caller wrote it there; peers are served from the slot
  cast,       ///< by the cast from f32 masters; peers are served from the slot
  multicast,  ///< by the multicast write that serves the peers
};

[[nodiscard]] constexpr std::string_view name(OwnBlock own) noexcept {
  constexpr std::string_view names[] = {"copy", "in_place", "cast", "multicast"};
  return names[static_cast<int>(own)];
}

/// Where the gradients of a reduce-scatter lie.
enum class GradientSource : std::uint8_t {
  storage,  ///< behind one base, as the layout says
  table,    ///< each behind a pointer of its own: no block may span two parameters
};

/// What is done with the scaled sum.
enum class Finish : std::uint8_t {
  store,       ///< output = scale * sum
  accumulate,  ///< output = output + scale * sum
  partial,     ///< partials = sum: a part of a larger one, not scaled; of kernels only
};

/// A kernel that reduce and cast ops name: all that is needed to pick the instantiation, before a step.
struct Kernel {
  enum class Kind : std::uint8_t {
    cast,
    sum,         ///< of inputs in the memory of the own rank, along the tree
    switch_sum,  ///< each input is itself a sum: of what lies in one place of every rank of the node, in any order
  };

  Kind kind = Kind::cast;
  Element input = Element::f32;
  Element output = Element::bf16;
  Finish finish = Finish::store;
  std::uint16_t inputs = 1;  ///< of a sum: the own one and the pieces; of one in the switch: places

  [[nodiscard]] friend constexpr bool operator==(const Kernel&, const Kernel&) = default;
};

[[nodiscard]] constexpr std::string_view name(Kernel::Kind kind) noexcept {
  constexpr std::string_view names[] = {"cast", "sum", "switch_sum"};
  return names[static_cast<int>(kind)];
}

/// Where the inbox of a reduce-scatter lies.
enum class InboxPlace : std::uint8_t {
  ring,  ///< in memory of its own: a chunk is written again when its reader has given a credit
  slot,  ///< in a gather slot that nobody reads any more: there is room for all chunks, each is written once in a run
};

[[nodiscard]] constexpr std::string_view name(InboxPlace place) noexcept {
  return place == InboxPlace::ring ? "ring" : "slot";
}

/// The inbox of a reduce-scatter: `chunks` chunks of `pieces` pieces, one per peer in rank order, the own rank left
/// out.
struct InboxShape {
  index_t chunks = 0;
  index_t pieces = 0;
  index_t chunk_elements = 0;  ///< elements of the packed output that a chunk covers
  index_t element_bytes = 0;   ///< of the widest gradient: the spacing of elements inside a piece, in chunk order
  index_t piece_room = 0;      ///< bytes from piece to piece where pieces are packed tightly; 0 where they are not
  InboxPlace place = InboxPlace::ring;
  index_t slot_bytes =
      0;  ///< of a slot over several nodes: sums of a node take the room of pieces that have been added

  [[nodiscard]] constexpr index_t piece_bytes() const noexcept {
    return piece_room > 0 ? piece_room : chunk_elements * element_bytes;
  }
  [[nodiscard]] constexpr index_t chunk_bytes() const noexcept { return pieces * piece_bytes(); }
  [[nodiscard]] constexpr index_t bytes() const noexcept {
    return slot_bytes > 0 ? slot_bytes : chunks * chunk_bytes();
  }
  [[nodiscard]] friend constexpr bool operator==(const InboxShape&, const InboxShape&) = default;
};

/// How the partial sums of a reduce-scatter cross nodes.
enum class Exchange : std::uint8_t {
  doubling,   ///< along the tree: in round k, sums of 2^k nodes, for many owners at once
  direct,     ///< from each node to each owner
  in_switch,  ///< from each node to a rank of the owner's node, by turns; the switch of that node adds them
};

[[nodiscard]] constexpr std::string_view name(Exchange exchange) noexcept {
  constexpr std::string_view names[] = {"doubling", "direct", "in_switch"};
  return names[static_cast<int>(exchange)];
}

/// What crosses nodes: memory for it on each rank, and how much may be on its way. All of it 0 on one node.
struct NetworkShape {
  index_t inbox_bytes = 0;                 ///< of one instance of the network inbox
  index_t inbox_instances = 1;             ///< at most 256
  index_t partials_bytes = 0;              ///< of one instance of the partials
  index_t partials_instances = 1;          ///< at most 256
  index_t piece_bytes = 0;                 ///< from piece to piece of a sum over nodes
  index_t puts_in_flight = 0;              ///< the most that may be on their way to one peer
  Exchange exchange = Exchange::doubling;  ///< of a reduce
  Element wire = Element::f32;             ///< of a reduce: what sums of several ranks cross in

  [[nodiscard]] constexpr index_t bytes() const noexcept {
    return inbox_instances * inbox_bytes + partials_instances * partials_bytes;
  }
  /// Whether the network inbox holds zeros before the first run: a switch adds the places that nothing is put to, too.
  [[nodiscard]] constexpr bool starts_as_zeros() const noexcept { return exchange == Exchange::in_switch; }
  [[nodiscard]] friend constexpr bool operator==(const NetworkShape&, const NetworkShape&) = default;
};

/// A gather or a reduce-scatter of one group over one mesh.
struct Collective {
  LayoutView layout{};
  Operation operation = Operation::gather;
  OwnBlock own = OwnBlock::copy;                       ///< of a gather
  GradientSource gradients = GradientSource::storage;  ///< of a reduce
  Finish finish = Finish::store;                       ///< of a reduce
  index_t ctas = 32;                                   ///< of a reduce: CTAs that a GPU sums with; changes no byte
  InboxShape inbox{};                                  ///< of a reduce
  NetworkShape network{};                              ///< over several nodes
  std::vector<Kernel> kernels{};

  [[nodiscard]] constexpr index_t ranks() const noexcept { return layout.mesh.ranks(); }
  [[nodiscard]] constexpr SignalWords words() const noexcept { return {ranks()}; }

  /// Bytes of one instance of a space on a rank; 0 for a space that the operation does not have.
  [[nodiscard]] constexpr index_t space_bytes(Space space, Rank rank) const {
    const bool gather = operation == Operation::gather;
    switch (space) {
      case Space::master:
        return gather && own == OwnBlock::cast ? layout.bytes(Buffer::masters, rank) : 0;
      case Space::shards:
        return gather && (gives_shards() || layout.mesh.nodes > 1) ? layout.bytes(Buffer::shards, rank) : 0;
      case Space::slot:
        return gather ? layout.bytes(Buffer::slot) : 0;
      case Space::inbox:
        return gather ? 0 : inbox.slot_bytes > 0 ? inbox.slot_bytes : inbox.chunk_bytes();
      case Space::gradients:
        return gather ? 0 : layout.bytes(Buffer::gradients);
      case Space::output:
        return gather ? 0 : layout.bytes(Buffer::output, rank);
      case Space::signals:
        return words().bytes();
      case Space::network_inbox:
        return network.inbox_bytes;
      case Space::partials:
        return network.partials_bytes;
    }
    return 0;
  }

  /// Instances of a space: chunks of the inbox, what the network has of its own, 1 of all others.
  [[nodiscard]] constexpr index_t space_instances(Space space) const noexcept {
    switch (space) {
      case Space::inbox:
        return inbox.slot_bytes > 0 ? 1 : inbox.chunks;
      case Space::network_inbox:
        return network.inbox_instances;
      case Space::partials:
        return network.partials_instances;
      default:
        return 1;
    }
  }

  /// Whether the caller of a gather gives packed shards. Else the plan has to make them where several nodes need them.
  [[nodiscard]] constexpr bool gives_shards() const noexcept {
    return own == OwnBlock::copy || own == OwnBlock::multicast;
  }
};

}  // namespace tide
