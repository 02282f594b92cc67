// SPDX-License-Identifier: Apache-2.0
//
// The host threads of a SimCluster, of which one has its turn at a time, and the time that passes while all wait.
//
//   rank 0   calls .. waits |                        | calls ..
//   rank 1                  | calls .. waits |
//   time                                     |=steps=|            until somebody's wait is over
//
// So nothing depends on when the system runs a thread. Without threads, time passes inside of each wait.

#pragma once

#include <tide/fabric/detail/run_threads.hpp>  // run_threads
#include <tide/fabric/detail/sim_machine.hpp>  // SimMachine
#include <tide/fabric/detail/sim_stuck.hpp>    // SimStuck

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// What a host waits for, in words.
struct SimWait {
  std::string text;     // "an event"
  std::string ended{};  // the whole sentence, where it is that a program has ended
  std::string late{};   // the whole sentence where the deadline passes, if there is a better one
  std::string whose{};  // see `noted`; the ranks' in `text`, where it names some
};

class SimTurns {
 public:
  // @param shards  ranks of a replica, where there are replicas; else 0
  SimTurns(const SimOptions& options, std::size_t hosts, index_t shards)
      : machine(options, hosts, failure), shards_(shards), hosts_(std::make_unique<Host[]>(hosts)) {}
  SimTurns(const SimTurns&) = delete;
  SimTurns& operator=(const SimTurns&) = delete;

  Failure failure;
  SimMachine machine;

  // ---- what a host does in its turn ----

  // Waits, while others have their turns and time passes, until `met()`, a failure, or the deadline, which is one.
  // @param what  (-> SimWait) that is waited for
  template <class Met, class What>
  void wait(std::size_t host, const Met& met, const What& what) {
    if (met() || failure.failed()) return;
    require_outside();
    const double limit = machine.now() + std::chrono::duration<double>(machine.options().host.deadline).count();
    const auto entry = deadlines_.insert({limit, host}).first;
    wait_for(host, met, what);
    deadlines_.erase(entry);
  }

  // Lets time pass for a host.
  void sleep(std::size_t host, double seconds) {
    if (failure.failed()) return;
    require_outside();
    const double end = machine.now() + seconds;
    const auto entry = alarms_.insert({end, host}).first;
    wait_for(
        host, [&] { return machine.now() >= end; }, [] { return SimWait{"time to pass"}; });
    alarms_.erase(entry);
  }

  // Lets others have their turns, and time pass where all of them wait.
  void pause(std::size_t host) {
    if (inside_ || failure.failed()) return;
    if (!threads_) {
      advance();
      ready_.clear();
      return;
    }
    paused_.push_back(host);
    pass_turn(host);
  }

  // Something has changed that hosts may wait for: who does finds out.
  void look() {
    for (std::size_t host = 0; host < machine.hosts(); ++host) look_at(host);
  }

  void fail(Errc code, std::string text) {
    failure.set(code, std::move(text));
    look();
  }

  // Fabrics of a host: its streams may wait for events of all of them.
  void add(std::size_t host, const FabricPort* fabric) { hosts_[host].fabrics.push_back(fabric); }
  [[nodiscard]] bool has(std::size_t host, const FabricPort* fabric) const {
    const std::vector<const FabricPort*>& own = hosts_[host].fabrics;
    return std::find(own.begin(), own.end(), fabric) != own.end();
  }

  // ---- threads ----

  // Runs `program(host)` for all hosts, each on a thread of its own, and throws again what was thrown first, which
  // fails them all.  @param threw  (name of a host, what -> text) says that a host threw
  template <class Program, class Threw>
  void run(const Program& program, const Threw& threw) {
    open();
    run_threads(
        machine.hosts(),
        [&](std::size_t host) {
          enter(host);
          program(host);
          leave();
        },
        [&](std::size_t host) { return name(host); },
        [&](std::size_t host, const char* what) {
          fail(Errc::operation, threw(name(host), what));
          leave();
        },
        [&](std::size_t started) { start(started); });
    threads_ = false;
  }

 private:
  struct Host {
    bool (*met)(const void*) = nullptr;  // while it waits
    const void* condition = nullptr;
    SimWait (*what)(const void*) = nullptr;
    const void* object = nullptr;
    std::vector<const FabricPort*> fabrics{};
    std::condition_variable turn{};
  };

  // Before the threads are started.
  void open() {
    threads_ = true;
    started_ = false;
    ready_.resize(machine.hosts());
    std::iota(ready_.begin(), ready_.end(), std::size_t{0});
    const std::uint64_t seed = machine.options().seed;
    for (std::size_t left = ready_.size(); seed != 0 && left > 1; --left) {
      std::swap(ready_[left - 1], ready_[random_bits(seed, left) % left]);
    }
  }
  // When those of the first `count` are: the first turn.
  void start(std::size_t count) {
    started_ = true;
    std::erase_if(ready_, [&](std::size_t host) { return host >= count; });
    give(next_turn());
  }
  void enter(std::size_t host) {
    std::unique_lock lock(mutex_);
    await_turn(host, lock);
  }
  void leave() {
    if (started_) give(next_turn());
  }

  template <class Met, class What>
  void wait_for(std::size_t host, const Met& met, const What& what) {
    Host& own = hosts_[host];
    own.met = [](const void* condition) { return (*static_cast<const Met*>(condition))(); };
    own.condition = &met;
    own.what = [](const void* object) { return (*static_cast<const What*>(object))(); };
    own.object = &what;
    ++waiting_;
    if (threads_) return pass_turn(host);
    while (own.met != nullptr) {
      if (!advance() && own.met != nullptr) stuck();
    }
    ready_.clear();
  }

  void require_outside() const {
    if (!inside_) return;
    raise(Errc::order, "tide::SimFabric: a function on a stream must not wait, nor close its fabric.");
  }

  // A host whose wait is over waits for its turn.
  void look_at(std::size_t host) {
    Host& own = hosts_[host];
    if (own.met == nullptr || !(failure.failed() || own.met(own.condition))) return;
    own.met = nullptr;
    --waiting_;
    ready_.push_back(host);
  }

  // Lets the next thing happen, while somebody waits; false where nothing can.
  bool advance() {
    if (failure.failed()) return false;
    const double event = machine.next();
    const double alarm = alarms_.empty() ? SimMachine::never : alarms_.begin()->first;
    const double next = std::min(event, alarm);
    if (next == SimMachine::never) return false;
    if (!deadlines_.empty() && deadlines_.begin()->first < next) {
      late();
      return true;
    }
    if (alarm < event) {
      machine.pass_to(alarm);
      look_at(alarms_.begin()->second);
      return true;
    }
    inside_ = true;
    machine.step();
    inside_ = false;
    if (failure.failed()) {
      look();
      return true;
    }
    std::vector<std::size_t>& touched = machine.touched();
    for (const std::size_t host : touched) look_at(host);
    touched.clear();
    return true;
  }

  void late() {
    const auto [limit, host] = *deadlines_.begin();
    machine.pass_to(limit);
    const SimWait wait = hosts_[host].what(hosts_[host].object);
    const SimCause cause = SimStuck(machine).cause_of(host);
    if (fail_of_ends(wait, cause)) return;
    if (!wait.late.empty()) return fail(Errc::deadline, wait.late);
    fail(Errc::deadline, noted(text({"tide::SimFabric: the deadline of ", seconds_text(machine.options().host.deadline),
                                     " passed: ", name(host), " waits for ", wait.text, "; ",
                                     cause.text.empty() ? no_op_waits : cause.text, "."}),
                               cause.text.empty() ? wait.whose : cause.whose));
  }

  // Nothing will ever happen, and somebody waits.
  void stuck() {
    std::size_t host = 0;
    while (hosts_[host].met == nullptr) ++host;
    const SimWait wait = hosts_[host].what(hosts_[host].object);
    const SimCause cause = SimStuck(machine).cause_of(host);
    if (fail_of_ends(wait, cause)) return;
    fail(Errc::deadline, noted(text({"tide::SimFabric: nothing can go on: ", name(host), " waits for ", wait.text,
                                     cause.text.empty() ? "" : "; ", cause.text, "."}),
                               cause.text.empty() ? wait.whose : cause.whose));
  }

  // That a program has ended without a call says more than that others wait.
  bool fail_of_ends(const SimWait& wait, const SimCause& cause) {
    const std::string& ended = wait.ended.empty() ? cause.ended : wait.ended;
    if (ended.empty()) return false;
    fail(Errc::order, ended);
    return true;
  }

  // Who has the next turn; none where all have ended.
  [[nodiscard]] std::optional<std::size_t> next_turn() {
    for (;;) {
      if (ready_.empty() && !paused_.empty()) {
        advance();
        if (ready_.empty()) std::swap(ready_, paused_);
      }
      if (!ready_.empty()) {
        const std::size_t host = ready_.front();
        ready_.pop_front();
        return host;
      }
      if (waiting_ == 0) return std::nullopt;
      if (!advance() && ready_.empty()) stuck();
    }
  }

  void give(std::optional<std::size_t> host) {
    const std::lock_guard lock(mutex_);
    current_ = host;
    if (host) hosts_[*host].turn.notify_one();
  }

  void pass_turn(std::size_t host) {
    const std::optional<std::size_t> next = next_turn();
    if (next == host) return;
    std::unique_lock lock(mutex_);
    current_ = next;
    if (next) hosts_[*next].turn.notify_one();
    await_turn(host, lock);
  }

  void await_turn(std::size_t host, std::unique_lock<std::mutex>& lock) {
    hosts_[host].turn.wait(lock, [&] { return current_ == host; });
  }

  // A host, for people to read.
  [[nodiscard]] std::string name(std::size_t host) const {
    const auto rank = static_cast<index_t>(host);
    return shards_ == 0 ? text({"rank ", rank}) : rank_of_replica(rank % shards_, rank / shards_);
  }

  const index_t shards_;
  std::unique_ptr<Host[]> hosts_;
  std::deque<std::size_t> ready_;   // their waits are over
  std::deque<std::size_t> paused_;  // they wait for nothing
  std::size_t waiting_ = 0;
  std::set<std::pair<double, std::size_t>> deadlines_;  // of hosts that wait
  std::set<std::pair<double, std::size_t>> alarms_;     // of hosts that sleep
  bool inside_ = false;                                 // a step, which may call a function of the user
  bool threads_ = false;
  bool started_ = false;

  std::mutex mutex_;
  std::optional<std::size_t> current_;  // who has its turn; guarded by the mutex
};

}  // namespace tide::detail
