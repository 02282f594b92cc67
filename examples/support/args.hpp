// SPDX-License-Identifier: Apache-2.0
//
// Args: the command line of a program, read strictly: what is not understood is refused before anything is done.
//
//   Args args(argc, argv, {{"--model", Args::value}, {"--summary", Args::alone}});
//   args.words()                     what stands there without a flag
//   args.has("--summary")
//   args.text("--model", "llama3.1-8b")
//   args.number("--ranks", 4, 1, 64)
//
// A flag is given at most once, in any order, with its value behind it: `--ranks 4` or `--ranks=4`. A value has at
// least one character; one that begins with "--" must stand behind "=".

#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tide_example {

/// A command line that breaks a rule; the program says so and exits with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The whole text as a number in [least, most], or nothing.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text, Number least, Number most) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  if (!whole || !(number >= least && number <= most)) return std::nullopt;
  return number;
}

class Args {
 public:
  enum Kind { alone, value };
  struct Flag {
    std::string_view name;
    Kind kind;
  };

  /// @throws UsageError when a flag is unknown, repeated, or lacks its value
  Args(int argc, char** argv, std::initializer_list<Flag> flags) {
    for (int i = 1; i < argc; ++i) {
      std::string_view word = argv[i];
      if (!word.starts_with("-") || word == "-") {
        words_.emplace_back(word);
        continue;
      }
      std::optional<std::string_view> text;
      if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
        text = word.substr(equals + 1);
        word = word.substr(0, equals);
      }
      const Flag* known = nullptr;
      for (const Flag& flag : flags) known = flag.name == word ? &flag : known;
      if (known == nullptr) throw UsageError("unknown flag '" + std::string(word) + "'");
      if (known->kind == alone && text) throw UsageError(std::string(word) + " takes no value");
      if (known->kind == value && !text) {
        if (i + 1 == argc || std::string_view(argv[i + 1]).starts_with("--")) {
          throw UsageError(std::string(word) + " needs a value; one that begins with -- is given as " +
                           std::string(word) + "=--value");
        }
        text = argv[++i];
      }
      if (known->kind == value && text->empty()) throw UsageError(std::string(word) + " needs a value");
      if (!given_.emplace(word, text.value_or("")).second) throw UsageError(std::string(word) + " is given twice");
    }
  }

  /// What is no flag and no flag's value, in order.
  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }

  [[nodiscard]] bool has(std::string_view flag) const { return given_.find(flag) != given_.end(); }

  /// The value of a flag.
  [[nodiscard]] std::optional<std::string> text(std::string_view flag) const {
    const auto found = given_.find(flag);
    if (found == given_.end()) return std::nullopt;
    return found->second;
  }
  [[nodiscard]] std::string text(std::string_view flag, std::string_view otherwise) const {
    return text(flag).value_or(std::string(otherwise));
  }

  /// The value of a flag that takes whole numbers from `least` to `most`.  @throws UsageError when it is none
  [[nodiscard]] std::int64_t number(std::string_view flag, std::int64_t otherwise, std::int64_t least,
                                    std::int64_t most) const {
    const std::optional<std::string> given = text(flag);
    if (!given) return otherwise;
    const std::optional<std::int64_t> parsed = parse_number(*given, least, most);
    if (!parsed) {
      throw UsageError(std::string(flag) + " takes a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most) + ", not '" + *given + "'");
    }
    return *parsed;
  }

  /// The position of a flag's value among `choices`; the first where it is not given.  @throws UsageError at any other
  [[nodiscard]] std::size_t choice(std::string_view flag, std::initializer_list<std::string_view> choices) const {
    const std::optional<std::string> given = text(flag);
    if (!given) return 0;
    std::size_t position = 0;
    std::string list;
    for (const std::string_view candidate : choices) {
      if (candidate == *given) return position;
      list += (list.empty() ? "" : ", ") + std::string(candidate);
      ++position;
    }
    throw UsageError(std::string(flag) + " takes one of " + list + ", not '" + *given + "'");
  }

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::string, std::less<>> given_;
};

}  // namespace tide_example
