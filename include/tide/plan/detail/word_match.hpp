// SPDX-License-Identifier: Apache-2.0
//
// Which signal or put meets which wait. A word has one source (a lane of a rank), its values grow in a run from 1 to at
// most `per_run`, and by `per_run` from run to run. A wait names a value that is raised: a later one would meet it too,
// but then the two ranks would not agree on what they wait for. Only net lanes wait for other nodes: a network may hand
// out a signal once, and serve waits in one order with puts.

#pragma once

#include <tide/plan/detail/op_graph.hpp>       // OpGraph
#include <tide/plan/detail/verify_report.hpp>  // VerifyReport

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tide::detail {

class WordMatch {
 public:
  // @pre every signal, put and wait names a word
  WordMatch(const Collective& collective, OpGraph& graph, VerifyReport& report)
      : words_(collective.words()), graph_(&graph), report_(&report) {
    const std::span<const Plan> plans = graph.plans();
    for (std::size_t p = 0; p < plans.size(); ++p) {
      for (std::size_t s = 0; s < plans[p].ops.size(); ++s) {
        const Op& op = plans[p].ops[s];
        if (!op.raises() && op.kind != OpKind::wait) continue;
        const Op::Raise raise = op.raises() ? op.raise() : Op::Raise{op.word(), op.value(), op.per_run()};
        const Use use{op.raises() ? op.peer : static_cast<std::int32_t>(p),
                      static_cast<std::int32_t>(raise.word),
                      static_cast<std::uint32_t>(p),
                      static_cast<std::uint32_t>(s),
                      raise.value,
                      static_cast<std::uint32_t>(raise.per_run),
                      op.lane};
        (op.raises() ? signals_ : waits_).push_back(use);
      }
    }
    signals_ = sorted(std::move(signals_));
    waits_ = sorted(std::move(waits_));
  }

  // Judges every word, then makes each wait follow its signal.
  void match() {
    for (std::size_t s = 0; s < signals_.size();) {
      const std::span<const Use> signals = group(signals_, s);
      check(signals);
      s += signals.size();
    }
    if (!report_->empty()) return;
    std::size_t s = 0;
    for (std::size_t w = 0; w < waits_.size();) {
      const std::span<const Use> waits = group(waits_, w);
      while (s < signals_.size() && before(signals_[s], waits[0])) ++s;
      const bool raised = s < signals_.size() && !before(waits[0], signals_[s]);
      const std::span<const Use> signals = raised ? group(signals_, s) : std::span<const Use>{};
      for (const Use& wait : waits) raised ? meet(wait, signals) : unmet(wait, signals);
      w += waits.size();
    }
  }

 private:
  // A signal or wait, with what is asked of it often.
  struct Use {
    std::int32_t owner;  // the rank that has the word
    std::int32_t word;
    std::uint32_t plan;
    std::uint32_t seq;
    index_t value;
    std::uint32_t per_run;
    std::uint16_t lane;
  };

  [[nodiscard]] static bool before(const Use& a, const Use& b) noexcept {
    return a.owner != b.owner ? a.owner < b.owner : a.word < b.word;
  }

  // Those of one rank after the other, word by word, in the order of issue.
  [[nodiscard]] std::vector<Use> sorted(std::vector<Use> uses) const {
    uses = sorted_by(uses, words_.count(), [](const Use& use) { return use.word; });
    return sorted_by(uses, words_.ranks, [](const Use& use) { return use.owner; });
  }

  // A stable sort by a number below `count`: millions of uses make a comparing one slow.
  template <class Key>
  [[nodiscard]] static std::vector<Use> sorted_by(const std::vector<Use>& uses, index_t count, Key key) {
    std::vector<std::size_t> next(static_cast<std::size_t>(count) + 1, 0);
    for (const Use& use : uses) ++next[static_cast<std::size_t>(key(use)) + 1];
    for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
    std::vector<Use> result(uses.size());
    for (const Use& use : uses) result[next[static_cast<std::size_t>(key(use))]++] = use;
    return result;
  }

  [[nodiscard]] static std::span<const Use> group(std::span<const Use> all, std::size_t first) noexcept {
    std::size_t last = first;
    while (last < all.size() && !before(all[first], all[last])) ++last;
    return all.subspan(first, last - first);
  }

  [[nodiscard]] LaneKind lane_kind(const Use& use) const { return graph_->plans()[use.plan].lanes[use.lane].kind; }
  [[nodiscard]] std::string name(const Use& use) const { return report_->word(use.owner, use.word); }
  [[nodiscard]] Side side(const Use& use) const { return report_->side(use.plan, use.seq); }
  [[nodiscard]] std::string who(const Use& use) const { return report_->who(use.plan, use.seq); }

  void fault(Law law, const Use& first, const std::string& text, const Use& second, const std::string& more) {
    report_->add(law, who(first) + " " + text + " " + who(second) + more, side(first), side(second));
  }

  // Judges the signals of a word.
  void check(std::span<const Use> signals) {
    const Use& first = signals[0];
    if (words_.kind(first.word) == WordKind::event && first.owner != static_cast<std::int32_t>(first.plan)) {
      report_->add(Law::agreement, who(first) + " raises " + name(first) + "; an event is of the own rank",
                   side(first));
      return;
    }
    index_t last = 0;
    for (const Use& now : signals) {
      if (now.plan != first.plan || now.lane != first.lane) {
        return fault(Law::agreement, first, "and", now, " both raise " + name(first) + "; a word has one source");
      }
      if (now.per_run != first.per_run) {
        return fault(Law::agreement, first,
                     "lets " + name(first) + " grow by " + std::to_string(first.per_run) + " in a run,", now,
                     " by " + std::to_string(now.per_run));
      }
      if (now.value < 1 || now.value > now.per_run) {
        report_->add(Law::progress,
                     who(now) + " raises " + name(first) + " to " + std::to_string(now.value) +
                         "; in a run it goes from 1 to " + std::to_string(now.per_run),
                     side(now));
        return;
      }
      if (now.value <= last) {
        report_->add(Law::progress,
                     who(now) + " raises " + name(first) + " to " + std::to_string(now.value) + " when it is " +
                         std::to_string(last) + "; words only grow",
                     side(now));
        return;
      }
      last = now.value;
    }
  }

  void meet(const Use& wait, std::span<const Use> signals) {
    const index_t per_run = wait.per_run;
    if (graph_->wire(signals[0].plan, signals[0].seq, 0) != no_node && lane_kind(wait) != LaneKind::net) {
      return fault(Law::agreement, wait, "waits for another node, which only a net lane may, by", signals[0], "");
    }
    if (wait.per_run != signals[0].per_run) {
      return fault(Law::agreement, wait,
                   "takes " + name(wait) + " to grow by " + std::to_string(per_run) + " in a run,", signals[0],
                   " by " + std::to_string(signals[0].per_run));
    }
    if (wait.value > per_run || wait.value < INT64_MIN / 2) return unmet(wait, signals);
    // A value that is 0 or less counts back into earlier runs; all runs raise the same values.
    const index_t back = (per_run - wait.value) / per_run;
    const index_t value = wait.value + back * per_run;
    const auto signal =
        std::lower_bound(signals.begin(), signals.end(), value, [](const Use& s, index_t v) { return s.value < v; });
    if (signal == signals.end() || signal->value != value) return unmet(wait, signals);
    for (index_t run = back; run < unrolled_runs; ++run) {  // before, it is met from the start
      graph_->set_extra(graph_->node(wait.plan, wait.seq, run), graph_->raise(signal->plan, signal->seq, run - back));
    }
  }

  void unmet(const Use& wait, std::span<const Use> signals) {
    std::string text = who(wait) + " waits for " + name(wait) + " >= " + std::to_string(wait.value) + ", ";
    if (signals.empty()) {
      report_->add(Law::progress, text + "which nobody raises", side(wait));
    } else {
      const Use& last = signals.back();
      text += "which no signal raises to just that; the last is " + who(last) + ", to " + std::to_string(last.value) +
              " of " + std::to_string(last.per_run) + " in a run";
      report_->add(Law::progress, text, side(wait), side(last));
    }
  }

  SignalWords words_;
  OpGraph* graph_;
  VerifyReport* report_;
  std::vector<Use> signals_;
  std::vector<Use> waits_;
};

}  // namespace tide::detail
