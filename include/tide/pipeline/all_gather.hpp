// SPDX-License-Identifier: Apache-2.0
//
// AllGather: delivers the shards of all ranks straight into per-parameter storage, in one slot of every rank.
//
//   using Gather = tide::AllGather<Layout, tide::UnicastTransport>;
//   Gather gather{fabric, slots};
//   fabric.init();
//   auto params = gather.enqueue(shards, stream);
//
// Laws                                               (tests/pipeline/all_gather.test.cpp)
//   delivery   every rank's parameter equals the concatenation of the shards, bit for bit; no other byte changes
//   no copy    no byte is written twice, and nothing is allocated in a step

#pragma once

#include <tide/memory/shards.hpp>                 // ShardsView
#include <tide/memory/slot_pool.hpp>              // SlotPool
#include <tide/pipeline/detail/gather_plans.hpp>  // gather_collective
#include <tide/pipeline/gathered.hpp>             // Gathered
#include <tide/pipeline/own_block.hpp>            // OwnBlockView
#include <tide/plan/tally.hpp>                    // driver_calls

#include <memory>
#include <string>
#include <utility>

namespace tide {

/// Says that the caller has written the own block into the slot: `gather.enqueue(tide::in_place, stream)`.
struct InPlace {};
inline constexpr InPlace in_place{};

/// @tparam Layout  `ShardLayout` or `DynamicLayout`
/// @tparam Intra   a Transport: how blocks move inside a node
/// @tparam Inter   an InterTransport, how blocks cross nodes: `SingleNode`, `RdmaDoublingTransport`
template <class Layout, class Intra, class Inter = SingleNode>
class AllGather : detail::GatherCalls<Layout, Intra, Inter> {
  static_assert(Transport<Intra>,
                "tide::AllGather: Intra must be a Transport; UnicastTransport or MulticastTransport.");
  static_assert(InterTransport<Inter>,
                "tide::AllGather: Inter must be an InterTransport; SingleNode, RdmaDoublingTransport or "
                "SendRecvDoublingTransport.");
  static_assert(!std::is_same_v<Inter, SingleNode> || detail::fits_single_node<Layout>,
                "tide::AllGather: SingleNode needs a mesh of one node; for several add RdmaDoublingTransport<>.");
  static_assert(std::is_same_v<Inter, SingleNode> || SpreadingTransport<Intra>,
                "tide::AllGather: over nodes Intra must be a SpreadingTransport; UnicastTransport or "
                "MulticastTransport.");

 public:
  /// Bytes of a slot, where the group is static.
  static constexpr index_t slot_bytes = detail::static_slot_bytes<Layout>;

  /// Bytes beside each slot, for what crosses nodes; 0 on one node. Where the layout is static.
  static constexpr index_t network_bytes = [] {
    static_assert(detail::is_static_layout<Layout>,
                  "tide::AllGather: driver_calls and network_bytes are constants of static layouts; ask the plans.");
    return slot_network(Layout{}.view()).bytes();
  }();

  /// Copies, memory operations, launches and events that a GPU is asked for when shards are gathered; the largest over
  /// ranks. Where the layout is static; a constant expression on one node.
  using detail::GatherCalls<Layout, Intra, Inter>::driver_calls;

  /// Writes the plans. Construct on every rank, in the same order, before `init` of the fabric.
  /// @param label  what errors call the group; by default its first parameter
  /// @throws Error (Errc::layout, Errc::mismatch) when the layout does not fit the mesh, (Errc::argument) when the
  ///         fabric cannot do what `Intra` needs or the pool is another fabric's, (Errc::capacity) when a slot is too
  ///         small
  template <class F, class Pool>
  AllGather(F& fabric, Pool& pool, std::string label = {})
      : AllGather(fabric, pool, detail::layout_on<Layout>(fabric), std::move(label)) {}
  template <class F, class Pool>
  AllGather(F& fabric, Pool& pool, Layout layout, std::string label = {})
      : port_(&fabric),
        life_(&pool.life()),
        layout_(std::move(layout)),
        check_shards_(fabric, layout_.view(), Buffer::shards),
        check_masters_(fabric, layout_.view(), Buffer::masters) {
    static_assert(
        Fabric<F>,
        "tide::AllGather: the first argument must be a Fabric; HostFabric, HostPort, SimFabric or CudaFabric.");
    static_assert(Pool::template holds<Layout>,
                  "tide::AllGather: the pool must be made for the layout; name it in SlotPool.");
    label_ = std::make_shared<const std::string>(detail::operation_label("gather", layout_.view(), label));
    detail::require_mesh(fabric, layout_.view());
    detail::require_inter<Inter>(fabric, layout_.view());
    detail::require_capability(fabric, Intra::capability, Intra::name);
    detail::require_pool(fabric, *life_, layout_.view().bytes(Buffer::slot), *label_);
    const SignalWords words{layout_.view().mesh.ranks()};
    std::vector<PlanVariant> variants;
    for (const OwnBlock own : {Intra::own_block, OwnBlock::in_place, OwnBlock::cast}) {
      variants.push_back(detail::gather_variant<F, Layout, Intra, Inter>(layout_.view(), own, fabric.rank()));
    }
    const ArenaPlaces places{fabric.reserve(words.bytes(), 256), 0, life_->offset(SlotIndex{0})};
    makes_shards_ = layout_.view().mesh.nodes > 1;
    program_ = fabric.attach(std::move(variants), places, *label_);
  }

  /// Gathers shards in the gathered element. Work on `stream` so far comes before; later work sees the parameters.
  /// @throws Error (Errc::argument) for shards of another rank, a null pointer or one below the elements' alignment,
  ///         (Errc::capacity) when all slots are held, (Errc::order) while the last handle lives
  template <class Stream>
  [[nodiscard]] Gathered<Layout> enqueue(const ShardsView<Layout, Buffer::shards>& shards, Stream& stream) {
    Bindings bindings;
    bindings.shards = shards.data();
    check_shards_(*port_, shards.layout().view(), shards.data(), shards.rank(), *label_);
    return launch(0, bindings, acquire(stream), stream);
  }

  /// Gathers f32 master shards: the cast writes the own block into its slot, and peers are served from there.
  template <class Stream>
  [[nodiscard]] Gathered<Layout> enqueue(const ShardsView<Layout, Buffer::masters>& masters, Stream& stream) {
    Bindings bindings;
    bindings.master = masters.data();
    check_masters_(*port_, masters.layout().view(), masters.data(), masters.rank(), *label_);
    return launch(2, bindings, acquire(stream), stream);
  }

  /// The same from storage.
  template <Buffer Which, class Stream>
  [[nodiscard]] Gathered<Layout> enqueue(const Shards<Layout, Which>& shards, Stream& stream) {
    return enqueue(shards.view(), stream);
  }

  /// Where the own block lies in a slot that was acquired for it; write there on the stream of `slots.acquire(stream)`,
  /// or after it is synchronized, and then enqueue `in_place`.
  /// @throws Error (Errc::argument) for a slot of another pool, (Errc::order) while the last handle lives
  [[nodiscard]] OwnBlockView<Layout> own_block(SlotLease slot) {
    life_->require_released(program_, *label_);
    if (!slot.is_of(*life_)) {
      port_->refuse(Errc::argument, detail::text({"tide::AllGather: the slot must be one that the pool of the pipeline "
                                                  "gave, and be given here once; ",
                                                  *label_, " on rank ", port_->rank().value, "."}));
    }
    own_ = std::move(slot);
    return OwnBlockView<Layout>(life_->data(own_.slot()), layout_, port_->rank());
  }

  /// Gathers the block that the caller has written in place: no byte of it moves here. Over several nodes one local
  /// copy packs it, since a network takes what is contiguous.
  /// @pre what wrote the block was enqueued on `stream`, or `stream` has waited for it
  /// @throws Error (Errc::order) when `own_block` was not called before, or while the last handle lives
  template <class Stream>
  [[nodiscard]] Gathered<Layout> enqueue(InPlace, Stream& stream) {
    life_->require_released(program_, *label_);
    if (!own_.is_of(*life_)) {
      port_->refuse(Errc::order, detail::text({"tide::AllGather: own_block must be called before a gather in place; ",
                                               *label_, " on rank ", port_->rank().value, "."}));
    }
    return launch(1, {}, std::move(own_), stream);
  }

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }

 private:
  template <class Stream>
  [[nodiscard]] SlotLease acquire(Stream& stream) {
    life_->require_released(program_, *label_);
    return SlotLease(*life_, life_->acquire(stream.ref()));
  }

  template <class Stream>
  [[nodiscard]] Gathered<Layout> launch(std::int32_t variant, Bindings bindings, SlotLease lease, Stream& stream) {
    bindings.slot = lease.slot().value;
    bindings.slot_offset = life_->offset(lease.slot());
    bindings.network_inbox = life_->network_inbox(lease.slot());
    if (makes_shards_) bindings.packed_shards = life_->packed_shards(lease.slot());
    if (bindings.shards == nullptr) bindings.shards = bindings.packed_shards;
    port_->launch(program_, variant, bindings, stream.ref());
    const SlotIndex slot = lease.take();
    life_->hold(slot, program_);
    return Gathered<Layout>(*life_, slot, layout_, port_->exit_event(program_, ExitKind::complete), label_);
  }

  FabricPort* port_;
  detail::SlotLife* life_;
  Layout layout_;
  detail::PackedCheck check_shards_;
  detail::PackedCheck check_masters_;
  std::shared_ptr<const std::string> label_;  // handles keep it
  std::int32_t program_ = -1;
  bool makes_shards_ = false;  // beside the slot, where the caller gives none: other nodes are served from there
  SlotLease own_;
};

}  // namespace tide
