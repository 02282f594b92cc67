// SPDX-License-Identifier: Apache-2.0
//
// AllReduce: every rank gets the sum of all ranks' f32 buffers, in the buffer itself: a reduce-scatter of one flat
// parameter, then a gather in place.
//
//   rank 0   |a a a a|       |A A    |       |A A B B|      A, B: the tree's sum, scaled
//   rank 1   |b b b b|  ->   |    B B|  ->   |A A B B|
//
//   tide::AllReduce<> losses{fabric, 1};
//   fabric.init();
//   stream.run([&] { losses.buffer()[0] = loss; });
//   stream.wait(losses.enqueue(stream));
//
// Laws                                               (tests/pipeline/all_reduce.test.cpp)
//   sum       buffer[i] = scale * tree(buffer of rank 0 [i], ...) on every rank, as a reduce-scatter's
//   in place  beside the buffers and an inbox there is no memory; nothing is allocated in a step

#pragma once

#include <tide/core/error.hpp>                   // raise
#include <tide/core/text.hpp>                    // text
#include <tide/pipeline/all_gather.hpp>          // AllGather
#include <tide/pipeline/detail/flat_layout.hpp>  // FlatLayout
#include <tide/pipeline/detail/port_stream.hpp>  // PortStream
#include <tide/pipeline/reduce_scatter.hpp>      // ReduceScatter
#include <tide/transport/unicast_transport.hpp>  // UnicastTransport

#include <array>
#include <string>
#include <vector>

namespace tide {

/// @tparam Count  `Depth<N>`: buffers of one length, reduced one after the other
/// @tparam Intra, R, Inter, Box  as of `AllGather` and `ReduceScatter`; `Box` is a `Ring`
template <class Count = Depth<1>, class Intra = UnicastTransport, class R = CopyEngineReducer<>,
          class Inter = SingleNode, class Box = Ring<Chunks<4>, Bytes<(index_t{64} << 20)>>>
class AllReduce {
  using Layout = detail::FlatLayout;
  static_assert(detail::is_tag<Depth, Count>, "tide::AllReduce: Count must be Depth<N>.");
  static_assert(!reuses_slots<Box>, "tide::AllReduce: Box must be a Ring; the buffers are never vacated.");
  static_assert(R::finish == Finish::store, "tide::AllReduce: R must store; the buffers hold what is summed.");

 public:
  static constexpr index_t count = Count::value;

  /// Construct on every rank, in the same order, before `init` of the fabric.
  /// @param elements  floats of a buffer, the same on every rank
  template <class F>
  AllReduce(F& fabric, index_t elements, std::string label = "all-reduce")
      : layout_(elements, fabric.mesh()),
        pool_(fabric, layout_),
        gather_(fabric, pool_, layout_, label),
        reduce_(fabric, layout_, label),
        work_(fabric.stream().ref()),
        rank_(fabric.rank()),
        elements_(elements) {
    buffers_.reserve(static_cast<std::size_t>(count));
    for (index_t i = 0; i < count; ++i) {
      SlotLease& slot = slots_[static_cast<std::size_t>(i)] = pool_.acquire(work_);
      buffers_.emplace_back(detail::ArenaStorage::at(fabric, pool_.life().offset(slot.slot())), layout_);
    }
  }
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;

  /// A buffer: what is written there before a call is summed, what is there after it is the sum.
  /// @throws Error (Errc::argument), here and in calls, when there is no such buffer
  [[nodiscard]] float* buffer(index_t i = 0) const {
    if (!has(i)) raise(Errc::argument, no_buffer(i));
    return reinterpret_cast<float*>(buffers_[static_cast<std::size_t>(i)].data());
  }
  [[nodiscard]] index_t elements() const noexcept { return elements_; }

  /// What the sums are multiplied with from the next call on; 1 / ranks at first, the average.
  void scale(float factor) noexcept { reduce_.scale(factor); }

  /// Sums a buffer over the ranks. Work on `stream` so far comes before; `stream` itself does not wait: the event says
  /// when the sums are there and the buffer may be written again.
  /// @throws Error as `AllGather::enqueue` and `ReduceScatter::enqueue`
  template <class Stream>
  [[nodiscard]] Event enqueue(Stream& stream, index_t i = 0) {
    return enqueue_after(stream.record(), i);
  }
  /// The same, after an event.
  [[nodiscard]] Event enqueue_after(const Event& written, index_t i = 0) {
    if (!has(i)) pool_.life().port().refuse(Errc::argument, no_buffer(i));
    SlotLease& slot = slots_[static_cast<std::size_t>(i)];
    work_.wait(written);
    const OwnBlockView<Layout> block(pool_.life().data(slot.slot()), layout_, rank_);
    std::byte* own = block.rows_of(ParameterIndex{0}).data;
    // A rank sums its own block over what it reads there, element by element; nobody else reads that block.
    const ReduceTicket ticket = reduce_.enqueue(buffers_[static_cast<std::size_t>(i)],
                                                ShardsView<Layout, Buffer::masters>(own, layout_, rank_), work_);
    work_.wait(ticket.gradients_free);
    work_.wait(ticket.shards_ready);
    static_cast<void>(gather_.own_block(std::move(slot)));
    Gathered<Layout> whole = gather_.enqueue(in_place, work_);
    const Event complete = whole.complete();
    whole.release(work_);
    slot = pool_.acquire(work_);  // the same one: all others are held
    return complete;
  }

 private:
  [[nodiscard]] static constexpr bool has(index_t i) noexcept { return i >= 0 && i < count; }
  [[nodiscard]] static std::string no_buffer(index_t i) {
    return detail::text({"tide::AllReduce: a buffer must be one of the Depth that there are; number ", i, " of ", count,
                         " was asked for."});
  }

  Layout layout_;
  SlotPool<Count, Layout> pool_;
  AllGather<Layout, Intra, Inter> gather_;
  ReduceScatter<Layout, R, Inter, Box> reduce_;
  detail::PortStream work_;
  Rank rank_;
  index_t elements_;
  std::array<SlotLease, static_cast<std::size_t>(count)> slots_;
  std::vector<Gradients<Layout>> buffers_;
};

}  // namespace tide
