// SPDX-License-Identifier: Apache-2.0
//
// Report: the rows of a benchmark, as a table for people and as JSON for programs.

#pragma once

#include "../../examples/support/files.hpp"
#include "../../examples/support/median.hpp"
#include "../../examples/support/table.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace tide_benchmark {

using tide_example::median;

/// One measurement. What does not apply stays empty.
struct Row {
  std::string operation;
  std::string path;
  std::string model;
  std::string group;
  std::string mesh = "1x2";
  std::string policy{};
  std::string source{};
  std::string beside = "none";
  std::string own{};
  std::vector<double> samples_ms{};
  std::optional<double> added_ms{};
  std::optional<double> sm_ms{};
  std::optional<std::int64_t> buffer_bytes{};
  std::optional<std::int64_t> driver_calls{};
  std::optional<double> host_us{};
  std::optional<std::int64_t> peak_bytes{};

  [[nodiscard]] double median_ms() const { return samples_ms.empty() ? 0 : median(samples_ms); }
};

struct Report {
  std::string machine;
  nlohmann::ordered_json versions;
  std::string command;
  std::string date;
  std::vector<Row> rows;
  bool right = true;  // no result was wrong
};

[[nodiscard]] inline nlohmann::ordered_json to_json(const Report& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : report.rows) {
    nlohmann::ordered_json out;
    out["operation"] = row.operation;
    out["path"] = row.path;
    if (!row.model.empty()) out["model"] = row.model;
    if (!row.group.empty()) out["group"] = row.group;
    out["mesh"] = row.mesh;
    if (!row.policy.empty()) out["policy"] = row.policy;
    if (!row.source.empty()) out["source"] = row.source;
    out["beside"] = row.beside;
    out["samples_ms"] = row.samples_ms;
    out["median_ms"] = row.median_ms();
    if (row.added_ms) out["added_ms"] = *row.added_ms;
    if (row.sm_ms) out["sm_ms"] = *row.sm_ms;
    if (row.buffer_bytes) out["buffer_bytes"] = *row.buffer_bytes;
    if (row.driver_calls) out["driver_calls"] = *row.driver_calls;
    if (row.host_us) out["host_us"] = *row.host_us;
    if (row.peak_bytes) out["peak_bytes"] = *row.peak_bytes;
    if (!row.own.empty()) out["own"] = row.own;
    rows.push_back(std::move(out));
  }
  nlohmann::ordered_json all;
  all["machine"] = report.machine;
  all["versions"] = report.versions;
  all["command"] = report.command;
  all["date"] = report.date;
  all["rows"] = std::move(rows);
  return all;
}

/// Writes a report to a file, or to standard output where it is "-".
inline void write_report(const std::string& file, const Report& report) {
  tide_example::write_file(file, [&](std::ostream& out) { out << to_json(report).dump(1) << '\n'; });
}

[[nodiscard]] inline std::string fixed(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

inline void print_table(std::ostream& out, const Report& report) {
  tide_example::Table table({"model", "operation", "path", "policy", "from", "own", "beside", "median ms", "added ms",
                             "SM*ms", "buffer MiB", "calls", "host us"});
  for (const Row& row : report.rows) {
    table.add({row.model, row.operation, row.path, row.policy, row.source, row.own, row.beside,
               fixed(row.median_ms(), 3), row.added_ms ? fixed(*row.added_ms, 3) : "",
               row.sm_ms ? fixed(*row.sm_ms, 1) : "",
               row.buffer_bytes ? fixed(static_cast<double>(*row.buffer_bytes) / (1 << 20), 1) : "",
               row.driver_calls ? std::to_string(*row.driver_calls) : "", row.host_us ? fixed(*row.host_us, 1) : ""});
  }
  out << table;
}

}  // namespace tide_benchmark
