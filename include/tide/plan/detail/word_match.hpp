// SPDX-License-Identifier: Apache-2.0
//
// Which signal meets which wait. A word has one source (a lane of a rank), its values grow in a run from 1 to at most
// `per_run`, and by `per_run` from run to run. A wait names a value that is raised: a later one would meet it too, but
// then the two ranks would not agree on what they wait for.

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
  // @pre every signal and wait names a word
  WordMatch(const Collective& collective, OpGraph& graph, VerifyReport& report)
      : words_(collective.words()), graph_(&graph), report_(&report) {
    const std::span<const Plan> plans = graph.plans();
    for (std::size_t p = 0; p < plans.size(); ++p) {
      for (std::size_t s = 0; s < plans[p].ops.size(); ++s) {
        const Op& op = plans[p].ops[s];
        if (op.kind == OpKind::signal) signals_.push_back(use(op.peer, op, p, s));
        if (op.kind == OpKind::wait) waits_.push_back(use(static_cast<std::int32_t>(p), op, p, s));
      }
    }
    const auto by_word = [](const Use& a, const Use& b) {
      return a.word != b.word ? a.word < b.word : a.plan != b.plan ? a.plan < b.plan : a.seq < b.seq;
    };
    std::sort(signals_.begin(), signals_.end(), by_word);
    std::sort(waits_.begin(), waits_.end(), by_word);
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
    for (const Use& wait : waits_) {
      while (s < signals_.size() && signals_[s].word < wait.word) s += group(signals_, s).size();
      const std::span<const Use> signals = group(signals_, s);
      if (signals.empty() || signals[0].word != wait.word) {
        unmet(wait, {});
      } else {
        meet(wait, signals);
      }
    }
  }

 private:
  struct Use {
    std::uint64_t word;  // rank and word
    std::uint32_t plan;
    std::uint32_t seq;
  };

  [[nodiscard]] Use use(std::int32_t rank, const Op& op, std::size_t plan, std::size_t seq) const noexcept {
    const auto word = static_cast<std::uint64_t>(rank) * static_cast<std::uint64_t>(words_.count()) +
                      static_cast<std::uint64_t>(op.word());
    return {word, static_cast<std::uint32_t>(plan), static_cast<std::uint32_t>(seq)};
  }

  [[nodiscard]] static std::span<const Use> group(std::span<const Use> all, std::size_t first) noexcept {
    std::size_t last = first;
    while (last < all.size() && all[last].word == all[first].word) ++last;
    return all.subspan(first, last - first);
  }

  [[nodiscard]] const Op& op(const Use& use) const noexcept { return graph_->plans()[use.plan].ops[use.seq]; }
  [[nodiscard]] index_t owner(const Use& use) const noexcept {
    return static_cast<index_t>(use.word / static_cast<std::uint64_t>(words_.count()));
  }
  [[nodiscard]] std::string name(const Use& use) const { return report_->word(owner(use), op(use).word()); }
  [[nodiscard]] Side side(const Use& use) const { return report_->side(use.plan, use.seq); }
  [[nodiscard]] std::string who(const Use& use) const { return report_->who(use.plan, use.seq); }

  void fault(Law law, const Use& first, const std::string& text, const Use& second, const std::string& more) {
    report_->add(law, who(first) + " " + text + " " + who(second) + more, side(first), side(second));
  }

  // Judges the signals of a word.
  void check(std::span<const Use> signals) {
    const Use& first = signals[0];
    if (words_.kind(op(first).word()) == WordKind::event && owner(first) != static_cast<index_t>(first.plan)) {
      report_->add(Law::agreement, who(first) + " raises " + name(first) + "; an event is of the own rank",
                   side(first));
      return;
    }
    for (std::size_t i = 0; i < signals.size(); ++i) {
      const Op& now = op(signals[i]);
      if (signals[i].plan != first.plan || now.lane != op(first).lane) {
        fault(Law::agreement, first, "and", signals[i], " both raise " + name(first) + "; a word has one source");
        return;
      }
      if (now.rows != op(first).rows) {
        fault(Law::agreement, first,
              "lets " + name(first) + " grow by " + std::to_string(op(first).rows) + " in a run,", signals[i],
              " by " + std::to_string(now.rows));
        return;
      }
      if (now.value() < 1 || now.value() > now.per_run()) {
        report_->add(Law::progress,
                     who(signals[i]) + " raises " + name(first) + " to " + std::to_string(now.value()) +
                         "; in a run it goes from 1 to " + std::to_string(now.per_run()),
                     side(signals[i]));
        return;
      }
      if (i > 0 && now.value() <= op(signals[i - 1]).value()) {
        fault(Law::progress, signals[i], "raises " + name(first) + " to " + std::to_string(now.value()) + " after",
              signals[i - 1], " raised it to " + std::to_string(op(signals[i - 1]).value()) + "; words only grow");
        return;
      }
    }
  }

  void meet(const Use& wait, std::span<const Use> signals) {
    const index_t per_run = op(wait).per_run();
    if (per_run != op(signals[0]).per_run()) {
      fault(Law::agreement, wait, "takes " + name(wait) + " to grow by " + std::to_string(per_run) + " in a run,",
            signals[0], " by " + std::to_string(op(signals[0]).per_run()));
      return;
    }
    const index_t value = op(wait).value();
    if (value > per_run || value < INT64_MIN / 2) return unmet(wait, signals);
    // A value that is 0 or less counts back into earlier runs; all runs raise the same values.
    const index_t back = (per_run - value) / per_run;
    const auto signal = std::lower_bound(signals.begin(), signals.end(), value + back * per_run,
                                         [this](const Use& s, index_t v) { return op(s).value() < v; });
    if (signal == signals.end() || op(*signal).value() != value + back * per_run) return unmet(wait, signals);
    for (index_t run = back; run < unrolled_runs; ++run) {  // before, it is met from the start
      graph_->set_extra(graph_->node(wait.plan, wait.seq, run), graph_->node(signal->plan, signal->seq, run - back));
    }
  }

  void unmet(const Use& wait, std::span<const Use> signals) {
    std::string text = who(wait) + " waits for " + name(wait) + " >= " + std::to_string(op(wait).value()) + ", ";
    if (signals.empty()) {
      report_->add(Law::progress, text + "which nobody raises", side(wait));
    } else {
      const Use& last = signals.back();
      text += "which no signal raises to just that; the last is " + who(last) + ", to " +
              std::to_string(op(last).value()) + " of " + std::to_string(op(last).per_run()) + " in a run";
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
