// SPDX-License-Identifier: Apache-2.0
//
// BarChart: horizontal bars as an SVG picture that needs nothing else.
//
//   title
//   label one  |=========| 2.26 ms
//   label two  |===============| 4.10 ms

#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace tide_benchmark {

struct Bar {
  std::string label;
  double value = 0;
  bool ours = false;  // drawn in the accent colour
};

class BarChart {
 public:
  BarChart(std::string title, std::string unit) : title_(std::move(title)), unit_(std::move(unit)) {}

  void add(Bar bar) { bars_.push_back(std::move(bar)); }
  [[nodiscard]] bool empty() const noexcept { return bars_.empty(); }

  [[nodiscard]] std::string svg() const {
    constexpr int row = 24;
    constexpr int left = 380;
    constexpr int width = 420;
    const int height = 60 + row * static_cast<int>(bars_.size());
    double most = 0;
    for (const Bar& bar : bars_) most = std::max(most, bar.value);
    std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"920\" height=\"" + std::to_string(height) +
                      "\" viewBox=\"0 0 920 " + std::to_string(height) +
                      "\" font-family=\"sans-serif\" font-size=\"13\">\n"
                      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
                      "<text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"bold\">" +
                      escaped(title_) + "</text>\n";
    int y = 46;
    for (const Bar& bar : bars_) {
      const double length = most > 0 ? std::max(0.0, bar.value) / most * width : 0;
      out += "<text x=\"" + std::to_string(left - 8) + "\" y=\"" + std::to_string(y + 14) + "\" text-anchor=\"end\">" +
             escaped(bar.label) + "</text>\n";
      out += "<rect x=\"" + std::to_string(left) + "\" y=\"" + std::to_string(y) + "\" width=\"" + number(length, 1) +
             "\" height=\"18\" fill=\"" + (bar.ours ? "#1f77b4" : "#b0b0b0") + "\"/>\n";
      out += "<text x=\"" + number(left + length + 6, 1) + "\" y=\"" + std::to_string(y + 14) + "\">" +
             number(bar.value, bar.value < 10 ? 2 : 1) + " " + escaped(unit_) + "</text>\n";
      y += row;
    }
    return out + "</svg>\n";
  }

 private:
  [[nodiscard]] static std::string number(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
  }

  [[nodiscard]] static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '&') {
        out += "&amp;";
      } else if (c == '<') {
        out += "&lt;";
      } else if (c == '>') {
        out += "&gt;";
      } else {
        out += c;
      }
    }
    return out;
  }

  std::string title_;
  std::string unit_;
  std::vector<Bar> bars_;
};

}  // namespace tide_benchmark
