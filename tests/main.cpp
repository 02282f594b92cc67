// SPDX-License-Identifier: Apache-2.0
//
// The one main() of all doctest programs. A run that tested nothing fails: a filter that matches no test case, a file
// whose test cases were lost, a loop that never entered its body.
//
//   --static   the program's proof is that it compiled (label `static`); it may be empty at run time

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>

namespace {

unsigned cases_run = 0;
int assertions_run = 0;

/// Counts what a run did; doctest itself reports an empty run as a success.
struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    cases_run = stats.numTestCasesPassingFilters;
    assertions_run = stats.numAsserts;
  }
  void test_case_start(const doctest::TestCaseData& /*test*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*test*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*data*/) override {}
  void log_message(const doctest::MessageData& /*message*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*test*/) override {}
};

}  // namespace

REGISTER_LISTENER("tide_counter", 1, Counter);

int main(int argc, char** argv) {
  bool may_be_empty = false;
  for (int i = 1; i < argc; ++i) {
    may_be_empty = may_be_empty || std::strcmp(argv[i], "--static") == 0;
  }
  doctest::Context context{argc, argv};
  const int result = context.run();
  if (context.shouldExit()) {  // a query such as --list-test-cases
    return result;
  }
  if (!may_be_empty && (cases_run == 0 || assertions_run == 0)) {
    std::fprintf(stderr, "%s: %u test cases and %d assertions ran: a run that tests nothing fails.\n", argv[0],
                 cases_run, assertions_run);
    return 1;
  }
  return result;
}
