// SPDX-License-Identifier: Apache-2.0
//
// ReduceScatter: sums the gradients of all ranks, as they lie, into fp32 shards.
//
//   using Reduce = tide::ReduceScatter<Layout, tide::CopyEngineReducer<>>;
//   Reduce reduce{fabric, slots};
//   fabric.init();
//   auto ticket = reduce.enqueue(gradients, fp32_shards, stream);
//   stream.wait(ticket.gradients_free);     // gradient memory may be written again
//   stream.wait(ticket.shards_ready);       // the optimizer may read
//
// Laws                                               (tests/pipeline/reduce_scatter.test.cpp)
//   sum       shard[i] = scale * tree(float(gradient of rank 0)[i], ...), each operation rounded on its own (reduce/tree.hpp)
//   same bits whatever the chunk size, lanes, delays and repetition; with SwitchReducer over nodes, each input once in
//             any order (tests/pipeline/switch_reduce.test.cpp)
//   constant  nothing is allocated in a step; the inbox has `inbox_bytes`

#pragma once

#include <tide/memory/gradients.hpp>              // Gradients, GradientTable
#include <tide/memory/shards.hpp>                 // ShardsView
#include <tide/memory/slot_pool.hpp>              // SlotPool
#include <tide/pipeline/detail/reduce_plans.hpp>  // reduce_collective
#include <tide/reduce/copy_engine_reducer.hpp>    // CopyEngineReducer
#include <tide/reduce/ring.hpp>                   // Ring
#include <tide/reduce/slot_reuse.hpp>             // SlotReuse

#include <string>
#include <utility>

namespace tide {

/// The two ends of a reduce-scatter.
struct ReduceTicket {
  Event gradients_free;  ///< gradient memory may be reused
  Event shards_ready;    ///< the fp32 shards may be read
};

/// @tparam Layout  `ShardLayout` or `DynamicLayout`
/// @tparam R       a Reducer: `CopyEngineReducer<Launch, Epilogue>` or `SwitchReducer<Launch, Epilogue>`
/// @tparam Inter   a NodeExchange: how partial sums cross nodes; nothing does by default
/// @tparam Box     an Inbox: where pieces wait; `Ring`, or `SlotReuse` in a slot of the pool
template <class Layout, class R, class Inter = SingleNode, class Box = Ring<Chunks<4>, Bytes<(index_t{64} << 20)>>>
class ReduceScatter {
  static_assert(Reducer<R>, "tide::ReduceScatter: R must be a Reducer; CopyEngineReducer or SwitchReducer.");
  static_assert(NodeExchange<Inter>,
                "tide::ReduceScatter: Inter must be a NodeExchange; SingleNode, RdmaDoublingTransport, "
                "RdmaDirectTransport or AutoTransport.");
  static_assert(Inbox<Box>, "tide::ReduceScatter: Box must be an Inbox; Ring or SlotReuse.");
  static_assert(!CrossesItself<R> || std::is_same_v<Inter, SingleNode> || !reuses_slots<Box>,
                "tide::SwitchReducer: over nodes the inbox must be a Ring; SlotReuse keeps sums where no switch adds.");
  static_assert(!CrossesItself<R> || wire_of<Inter> == Element::f32,
                "tide::SwitchReducer: sums must cross in f32; use Inter without Bf16Wire.");
  static_assert(!reuses_slots<Box> || detail::may_fit_slot<Layout>,
                "tide::SlotReuse: no gradient element may be wider than its gathered one; use Ring.");
  static_assert(!std::is_same_v<Inter, SingleNode> || detail::fits_single_node<Layout>,
                "tide::ReduceScatter: SingleNode needs a mesh of one node; for several add RdmaDoublingTransport<>.");
  using Crossing = typename detail::Crossing<R, Inter>::type;  // as R and Inter agree
  static_assert(detail::may_fit_inbox<Layout, Box, Crossing>,
                "tide::Ring: Bytes must hold one unit of 64 elements from each peer in every chunk.");

 public:
  /// Bytes of the inbox, of what lands from other nodes and of sums on their way, beside the slots of the pool; where
  /// the layout is static.
  static constexpr index_t inbox_bytes = [] {
    static_assert(detail::is_static_layout<Layout>,
                  "tide::ReduceScatter: inbox_bytes and driver_calls are constants of static layouts; ask the plans.");
    return detail::own_bytes(detail::reduce_memory<Crossing, Box>(Layout{}.view()));
  }();

  /// Copies, memory operations, launches and events that a GPU is asked for; the largest over ranks. Where the layout
  /// is static.
  static constexpr index_t driver_calls = [] {
    static_assert(detail::is_static_layout<Layout>,
                  "tide::ReduceScatter: inbox_bytes and driver_calls are constants of static layouts; ask the plans.");
    return detail::reduce_driver_calls<Layout, R, Crossing, Box>;
  }();

  /// Writes the plans. Construct on every rank, in the same order, before `init` of the fabric.
  /// @param label  what errors call the group; by default its first parameter
  /// @throws Error (Errc::layout, Errc::mismatch) when the layout does not fit the mesh or the slot, (Errc::capacity)
  ///         when the inbox or a slot is too small
  template <class F>
  explicit ReduceScatter(F& fabric, std::string label = {})
      : ReduceScatter(fabric, detail::layout_on<Layout>(fabric), std::move(label)) {}
  template <class F>
  ReduceScatter(F& fabric, Layout layout, std::string label = {})
      : ReduceScatter(fabric, nullptr, std::move(layout), std::move(label)) {
    static_assert(!reuses_slots<Box>,
                  "tide::SlotReuse: the reduce-scatter must be given a pool; ReduceScatter reduce{fabric, slots}.");
  }
  /// The same beside a pool: `SlotReuse` takes a slot of it for each call, `Ring` none.
  template <class F, detail::SlotSource Pool>
  ReduceScatter(F& fabric, Pool& pool, std::string label = {})
      : ReduceScatter(fabric, pool, detail::layout_on<Layout>(fabric), std::move(label)) {}
  template <class F, detail::SlotSource Pool>
  ReduceScatter(F& fabric, Pool& pool, Layout layout, std::string label = {})
      : ReduceScatter(fabric, reuses_slots<Box> ? &pool.life() : nullptr, std::move(layout), std::move(label)) {
    static_assert(!reuses_slots<Box> || Pool::template holds<Layout>,
                  "tide::ReduceScatter: the pool must be made for the layout; name it in SlotPool.");
  }

  /// What the sums are multiplied with from the next call on; 1 / ranks at first, the average.
  void scale(float factor) noexcept { scale_ = factor; }

  /// Reduces gradients in static storage. Work on `stream` so far comes before; `stream` itself does not wait.
  /// @param shards  f32 shards of the own rank; overwritten, or added to (`Accumulate`)
  /// @throws Error (Errc::argument) for shards of another rank, a null pointer or one below 4-byte alignment
  template <class Stream>
  ReduceTicket enqueue(Gradients<Layout>& gradients, const ShardsView<Layout, Buffer::masters>& shards,
                       Stream& stream) {
    detail::require_layout(*port_, layout_.view(), gradients.layout().view(), Buffer::gradients, label_);
    Bindings bindings = bind(shards);
    bindings.gradients = gradients.data();
    zero_missing(gradients, stream.ref());
    const ReduceTicket ticket = launch(0, bindings, stream);
    gradients.none_missing();
    return ticket;
  }

  /// Reduces gradients behind a table of pointers: at least one copy per parameter and peer.
  /// @throws Error (Errc::argument) also for a gradient that is neither set nor missing, overlaps another, or is below
  ///         its element's alignment
  template <class Stream>
  ReduceTicket enqueue(const GradientTable<Layout>& gradients, const ShardsView<Layout, Buffer::masters>& shards,
                       Stream& stream) {
    detail::require_layout(*port_, layout_.view(), gradients.layout().view(), Buffer::gradients, label_);
    check_table_(*port_, gradients, label_);
    Bindings bindings = bind(shards);
    bindings.gradient_table = gradients.pointers().data();
    return launch(1, bindings, stream);
  }

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }

 private:
  template <class F>
  ReduceScatter(F& fabric, detail::SlotLife* life, Layout layout, std::string label)
      : port_(&fabric),
        layout_(std::move(layout)),
        label_(detail::operation_label("reduce", layout_.view(), label)),
        check_shards_(fabric, layout_.view(), Buffer::masters),
        check_table_(layout_.view()),
        scale_(1.0F / static_cast<float>(layout_.view().mesh.ranks())),
        life_(life) {
    static_assert(
        Fabric<F>,
        "tide::ReduceScatter: the first argument must be a Fabric; HostFabric, HostPort, SimFabric or CudaFabric.");
    detail::require_mesh(fabric, layout_.view());
    detail::require_inter<Inter>(fabric, layout_.view());
    // Who crosses nodes itself needs on one node what every fabric has.
    if (!CrossesItself<R> || layout_.view().mesh.nodes > 1) detail::require_capability(fabric, R::capability, R::name);
    std::vector<PlanVariant> variants;
    for (const GradientSource source : {GradientSource::storage, GradientSource::table}) {
      variants.push_back(detail::reduce_variant<F, Layout, R, Crossing, Box>(layout_.view(), source, fabric.rank()));
    }
    if (life_ != nullptr) detail::require_pool(fabric, *life_, variants.front().collective.inbox.bytes(), label_);
    const Collective& first = variants.front().collective;
    ArenaPlaces places;
    places.signals = fabric.reserve(first.words().bytes(), 256);
    if (life_ == nullptr) places.inbox = fabric.reserve(first.inbox.bytes(), 256);
    if (life_ != nullptr) places.slots = life_->offset(SlotIndex{0});
    const NetworkShape& network = first.network;
    network_inbox_ = fabric.reserve(network.inbox_instances * network.inbox_bytes, 256);
    places.network_inbox = network_inbox_;
    partials_ = fabric.reserve(network.partials_instances * network.partials_bytes, 256);
    program_ = fabric.attach(std::move(variants), places, label_);
  }

  [[nodiscard]] Bindings bind(const ShardsView<Layout, Buffer::masters>& shards) {
    Bindings bindings;
    check_shards_(*port_, shards.layout().view(), shards.data(), shards.rank(), label_);
    bindings.output = shards.data();
    bindings.network_inbox = network_inbox_;
    bindings.partials = partials_;
    bindings.scale = scale_;
    return bindings;
  }

  // In stream order, after the last reduce has read what is zeroed.
  void zero_missing(const Gradients<Layout>& gradients, StreamRef stream) {
    bool first = true;
    for (index_t i = 0; i < layout_.view().group.size(); ++i) {
      const ParameterIndex parameter{i};
      if (!gradients.is_missing(parameter)) continue;
      if (first) port_->wait(stream, port_->exit_event(program_, ExitKind::gradients_free));
      first = false;
      const Parameter missing = layout_.view().group[parameter];
      const index_t bytes = missing.shape.elements() * static_cast<index_t>(size_bytes(missing.gradient));
      port_->zero(stream, gradients.at(parameter), bytes);
    }
  }

  template <class Stream>
  ReduceTicket launch(std::int32_t variant, Bindings bindings, Stream& stream) {
    SlotLease lease = life_ != nullptr ? SlotLease(*life_, life_->acquire(stream.ref(), "reduced")) : SlotLease();
    if (life_ != nullptr) {
      bindings.slot = lease.slot().value;
      bindings.slot_offset = life_->offset(lease.slot());
    }
    port_->launch(program_, variant, bindings, stream.ref());
    const ReduceTicket ticket{port_->exit_event(program_, ExitKind::gradients_free),
                              port_->exit_event(program_, ExitKind::shards_ready)};
    // The slot may be written again, here and by peers, when the last piece in it has been summed.
    if (life_ != nullptr) life_->release(lease.take(), ticket.shards_ready);
    return ticket;
  }

  FabricPort* port_;
  Layout layout_;
  std::string label_;
  detail::PackedCheck check_shards_;
  detail::GradientCheck check_table_;
  float scale_;
  detail::SlotLife* life_;  // null where the inbox is no slot
  index_t network_inbox_ = 0;
  index_t partials_ = 0;
  std::int32_t program_ = -1;
};

}  // namespace tide
