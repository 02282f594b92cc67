// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a HostCluster share: arenas, counters, the first failure, the ledger of calls.

#pragma once

#include <tide/fabric/detail/agreement.hpp>    // Declared
#include <tide/fabric/detail/arenas.hpp>       // Arenas
#include <tide/fabric/detail/call_ledger.hpp>  // CallLedger
#include <tide/fabric/detail/failure.hpp>      // Failure, Refusal
#include <tide/fabric/detail/host_wires.hpp>   // HostWires
#include <tide/fabric/fabric.hpp>              // FabricPort
#include <tide/fabric/host_options.hpp>        // HostOptions

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tide::detail {

using Clock = std::chrono::steady_clock;

// Wakes whoever waits for words, counters and queues of one rank, and knows what its ops wait for.
class Bell {
 public:
  // Whom an op waits for, near ones first.
  enum class Whom : std::uint8_t { own_lane, rank, other_node };
  // What an op waits for: the reason why whoever waits for the op comes too late.
  struct Reason {
    std::string (*describe)(const void* object);
    const void* object;
    Whom whom = Whom::own_lane;
    Clock::time_point since{};
  };
  // A reason in words; none where the text is empty.
  struct Said {
    Whom whom = Whom::own_lane;
    Clock::time_point since = Clock::time_point::max();
    std::string text{};
  };

  // Wakes those whose condition is met now; the others sleep on.
  void ring() {
    const std::lock_guard lock(mutex_);  // orders the ring after a waiter's own check of its condition
    for (Waiter* waiter = first_; waiter != nullptr; waiter = waiter->next) {
      if (waiter->met(waiter->condition)) waiter->wake.notify_one();
    }
  }

  // Waits until `met()`; false when the deadline passed first. `met` only reads atomics: other threads call it, too.
  template <class Met>
  bool wait(Duration deadline, const Met& met, const Reason* reason = nullptr) {
    constexpr int polls = 64;  // a peer that is only a few copies away does not cost a sleep
    for (int i = 0; i < polls; ++i) {
      if (met()) return true;
    }
    const auto end = Clock::now() + deadline;
    Waiter waiter{[](const void* condition) { return (*static_cast<const Met*>(condition))(); }, &met, reason};
    std::unique_lock lock(mutex_);
    append(waiter);
    const bool in_time = waiter.wake.wait_until(lock, end, met);
    remove(waiter);
    return in_time;
  }

  // What the op that has waited longest for somebody at least as far waits for.
  [[nodiscard]] Said reason(Whom least) {
    const std::lock_guard lock(mutex_);
    const Reason* first = nullptr;
    for (const Waiter* waiter = first_; waiter != nullptr; waiter = waiter->next) {
      const Reason* reason = waiter->reason;
      if (reason == nullptr || reason->whom < least) continue;
      if (first == nullptr || reason->since < first->since) first = reason;
    }
    return first == nullptr ? Said{} : Said{first->whom, first->since, first->describe(first->object)};
  }

 private:
  // On the stack of the thread that waits.
  struct Waiter {
    bool (*met)(const void* condition);
    const void* condition;
    const Reason* reason;
    std::condition_variable wake{};
    Waiter* next = nullptr;
  };

  void append(Waiter& waiter) noexcept {
    Waiter** end = &first_;
    while (*end != nullptr) end = &(*end)->next;
    *end = &waiter;
  }

  void remove(const Waiter& waiter) noexcept {
    Waiter** at = &first_;
    while (*at != &waiter) at = &(*at)->next;
    *at = waiter.next;
  }

  std::mutex mutex_;
  Waiter* first_ = nullptr;
};

struct HostRank {
  Declared declared;
  Bell bell;
  std::deque<std::atomic<std::uint64_t>> counters;  // a deque: counters stay where they are as it grows
  bool present = false;                             // at the barrier
  std::atomic<bool> ended{false};                   // its program: it makes no more calls
  std::atomic<bool> closed{false};                  // and never will
  std::atomic<bool> waits{false};                   // the rank's host thread, for its work
  HostWires wires;                                  // with a network hook
};

class HostState;

// Clusters that fail together, since their ranks wait for each other: one, unless a rank has several fabrics.
struct HostKin {
  Failure failure;
  std::mutex mutex;
  std::vector<HostState*> states;  // guarded by mutex
};

// Shared by all ranks of a cluster, and kept alive by each.
class HostState {
 public:
  // @param ranks_are  see `noted`
  HostState(MeshShape shape, HostOptions given, std::shared_ptr<HostKin> relatives, std::string ranks_are)
      : mesh(shape),
        options(bounded(std::move(given))),
        ranks(static_cast<std::size_t>(shape.ranks())),
        arenas(shape.ranks()),
        kin(std::move(relatives)),
        failure(kin->failure),
        whose(std::move(ranks_are)),
        ledger_(shape.ranks()) {
    const std::lock_guard lock(kin->mutex);
    kin->states.push_back(this);
  }
  HostState(const HostState&) = delete;
  HostState& operator=(const HostState&) = delete;
  ~HostState() {
    const std::lock_guard lock(kin->mutex);
    std::erase(kin->states, this);
  }

  HostRank& at(Rank rank) noexcept { return ranks[static_cast<std::size_t>(rank.value)]; }

  // A wait of a rank took longer than the deadline: fails with what came too late. `who` says who waits, where that is
  // no op; `own` what an op waits for, if one does.
  void fail_late(Rank rank, const std::string& who, const Bell::Said& own) {
    Bell::Said said = first_reason(rank, own);
    // An op with the same deadline may have given up a moment ago, and knows more: it gets the time to say so.
    for (int i = 0; i < 20 && said.whom == Bell::Whom::own_lane && !failure.failed(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      said = first_reason(rank, own.text.empty() ? at(rank).bell.reason(Bell::Whom::own_lane) : own);
    }
    if (said.text.empty()) said.text = no_op_waits;
    fail(Errc::deadline, detail::text({"tide::HostFabric: the deadline of ", seconds_text(options.deadline),
                                       " passed: ", who, said.text, "."}));
  }

  // Fails the cluster and its kin, and wakes everything that waits there. The first failure stays.
  void fail(Errc code, std::string text) { fail_as(code, noted(std::move(text), whose)); }

  // The same with an error that says whose its ranks are, or names none.
  void fail_as(Errc code, std::string text) {
    if (failure.set(code, std::move(text))) wake();
  }

  // Collective over the ranks: `last` runs once, when all have come and before any leaves; it may set the failure. A
  // rank that waits longer than the deadline fails the cluster. The caller looks at the failure afterwards.
  template <class Last>
  void meet(Rank rank, const char* what, const Last& last) {
    std::unique_lock lock(barrier_);
    if (failure.failed()) return;
    at(rank).present = true;
    if (++present_ == mesh.ranks()) {
      last();
      present_ = 0;
      for (HostRank& other : ranks) other.present = false;
      ++generation_;
      lock.unlock();
      wake();
      return;
    }
    const auto is_over = [&, generation = generation_] { return generation_ != generation || failure.failed(); };
    const auto ended = [&] {
      return std::find_if(ranks.begin(), ranks.end(), [](const HostRank& r) { return r.ended && !r.present; });
    };
    const auto left = [&] { return is_over() || ended() != ranks.end(); };
    const bool in_time = barrier_changed_.wait_for(lock, options.deadline, left);
    if (is_over()) return;
    if (in_time) {
      const Rank gone{ended() - ranks.begin()};
      lock.unlock();
      return fail(Errc::order, text_of_end(gone, detail::text({what, " needs all ranks"})));
    }
    std::string absent;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!ranks[r].present) absent += (absent.empty() ? "" : ", ") + std::to_string(r);
    }
    lock.unlock();
    fail(Errc::deadline, absent_text(what, mesh.ranks(), options.deadline, absent));
  }

  // Records the next call of a rank and compares it with what the others called there. What another rank has refused is
  // returned; a difference fails the cluster.
  [[nodiscard]] std::optional<Refusal> enter_call(Rank rank, std::int32_t program, std::int32_t slot,
                                                  const CallNote& note) {
    std::unique_lock lock(calls_mutex_);
    CallLedger::Entered entered = ledger_.enter(rank, program, slot, note, [&](Rank of, std::int32_t which) {
      return at(of).declared.attached[static_cast<std::size_t>(which)].label;
    });
    lock.unlock();
    if (!entered.differs.empty()) fail(Errc::order, std::move(entered.differs));
    return std::move(entered.refused);
  }

  // Refuses the next call of a rank, on all ranks, and returns what they all say: the first refusal of the call. Where
  // a rank has begun the call already, only a failure can reach it.
  [[nodiscard]] Refusal refuse_call(Rank rank, Refusal refusal) {
    refusal.text = noted(std::move(refusal.text), whose);
    std::unique_lock lock(calls_mutex_);
    CallLedger::Refused refused = ledger_.refuse(rank, std::move(refusal));
    lock.unlock();
    if (refused.begun) fail_as(refused.said.code, refused.said.text);
    return std::move(refused.said);
  }

  // How many calls the rank has made, asked by itself.
  [[nodiscard]] std::uint64_t calls(Rank rank) const noexcept { return ledger_.made(rank); }

  // The program of a rank has ended, or its fabric is closed: whoever waits for a call of it hears that at once.
  void end(Rank rank, bool closed) {
    {
      const std::lock_guard lock(calls_mutex_);
      at(rank).ended = true;
      if (closed) at(rank).closed = true;
      find_missing_call();
    }
    wake();
  }

  // All programs have ended: others may follow.
  void resume() {
    const std::lock_guard lock(calls_mutex_);
    for (HostRank& rank : ranks) rank.ended = rank.closed.load();
    find_missing_call();
  }

  // Whether a call waits in vain, and a host thread for it: a rank has ended without it. Only reads atomics.
  [[nodiscard]] bool is_in_vain(Rank rank, std::uint64_t call) noexcept {
    return at(rank).waits && call >= first_missing_call_;
  }

  // Wakes what waits for a call that will not come, to look whether it is in vain now.
  void look_again(Rank rank) {
    if (first_missing_call_ != no_call) at(rank).bell.ring();
  }

  // Fails: an op waits for a call that a rank ended without; `what` says which op.
  void fail_in_vain(const std::string& what) {
    std::unique_lock lock(calls_mutex_);
    const Rank gone = missing_rank_;
    lock.unlock();
    fail(Errc::order, text_of_end(gone, what));
  }

  const MeshShape mesh;
  const HostOptions options;
  std::vector<HostRank> ranks;
  Arenas arenas;
  const std::shared_ptr<HostKin> kin;
  Failure& failure;         // of the kin
  const std::string whose;  // see `noted`

 private:
  static constexpr std::uint64_t no_call = ~std::uint64_t{0};

  // Of the calls that a rank which has ended did not make, the first.
  void find_missing_call() {
    std::uint64_t first = no_call;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Rank rank{static_cast<index_t>(r)};
      if (!ranks[r].ended || ledger_.made(rank) >= first) continue;
      first = ledger_.made(rank);
      missing_rank_ = rank;
    }
    first_missing_call_ = first;
  }

  // @param what  what somebody waits for
  [[nodiscard]] std::string text_of_end(Rank gone, const std::string& what) {
    return programs_end_apart(gone, at(gone).closed, what);
  }

  // Of all that wait for other nodes the first, since the others may wait for it. Where none does, what the op waits
  // for, or, if that is a lane of its rank, what the rank waits for of others.
  [[nodiscard]] Bell::Said first_reason(Rank rank, const Bell::Said& own) {
    Bell::Said first = own.whom == Bell::Whom::other_node ? own : Bell::Said{};
    for (HostRank& other : ranks) {
      if (mesh.nodes == 1) break;
      if (Bell::Said said = other.bell.reason(Bell::Whom::other_node); said.since < first.since)
        first = std::move(said);
    }
    if (first.text.empty() && own.whom == Bell::Whom::own_lane) first = at(rank).bell.reason(Bell::Whom::rank);
    return first.text.empty() ? own : first;
  }

  static HostOptions bounded(HostOptions given) {
    given.deadline = detail::bounded(given.deadline);
    return given;
  }

  void wake() {
    const std::lock_guard lock(kin->mutex);
    for (HostState* state : kin->states) state->wake_own();
  }

  void wake_own() {
    for (HostRank& rank : ranks) {
      rank.bell.ring();
      rank.wires.wake();
    }
    { const std::lock_guard lock(barrier_); }  // orders the call after a waiter's check of its condition
    barrier_changed_.notify_all();
  }

  std::mutex barrier_;
  std::condition_variable barrier_changed_;
  index_t present_ = 0;
  std::uint64_t generation_ = 0;

  std::mutex calls_mutex_;
  CallLedger ledger_;
  Rank missing_rank_{};  // who made the fewest calls of those that have ended
  std::atomic<std::uint64_t> first_missing_call_{no_call};
};

}  // namespace tide::detail
