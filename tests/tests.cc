// tests.cc: the one C++ file. Registers with GoogleTest: the C unit tests (UNIT in tests/unit/*.c) and the tests
// that are files (tests/golden/**, tests/errors/*): first line the command, then the input, a line `----`, and what
// dtc prints (standard output, then standard error). DTC_BLESS=1 rewrites the expected part.
//
//   # dtc check -            the command; `-` reads the input, which is given on standard input
//   dim B = 8
//   ----
//   error[E0201]: ...
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "unit.h"

namespace {

struct Unit {
  const char *file, *name;
  void (*test)();
};
std::vector<Unit> &units() {
  static std::vector<Unit> all;
  return all;
}

struct UnitTest : testing::Test {
  explicit UnitTest(Unit u) : unit(u) {}
  void TestBody() override { unit.test(); }
  Unit unit;
};

std::string slurp(const std::filesystem::path &p) {
  std::ifstream in(p, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

// Runs `dtc ARGS` in the folder of the test, feeding it `input`; returns standard output followed by standard error.
std::string run_dtc(const std::string &args, const std::string &input, const std::filesystem::path &folder) {
  char path[] = "/tmp/dtc-test-XXXXXX";
  int fd = mkstemp(path);
  std::ofstream(path, std::ios::binary) << input;
  std::string command = "cd '" + folder.string() + "' && { '" DTC_BINARY "' " + args + " 2>'" + path +
                        ".err'; echo \"exit $?\" >'" + path + ".rc'; } <'" + path + "'";
  std::string out;
  FILE *p = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, p)) > 0;) out.append(buffer, n);
  pclose(p);
  close(fd);
  out += slurp(std::string(path) + ".err");
  std::string rc = slurp(std::string(path) + ".rc");
  if (rc != "exit 0\n") out += rc;
  for (const char *suffix : {"", ".err", ".rc"}) std::filesystem::remove(std::string(path) + suffix);
  return out;
}

struct FileTest : testing::Test {
  explicit FileTest(std::filesystem::path p) : path(std::move(p)) {}
  void TestBody() override {
    std::string text = slurp(path);
    size_t eol = text.find('\n'), dashes = text.find("\n----\n");
    ASSERT_NE(dashes, std::string::npos) << path << " has no line ----";
    std::string first = text.substr(0, eol);
    ASSERT_EQ(first.rfind("# dtc ", 0), 0u) << path << " must begin with `# dtc ...`";
    std::string input = dashes > eol ? text.substr(eol + 1, dashes - eol) : "";
    std::string got = run_dtc(first.substr(6), input, path.parent_path());
    if (getenv("DTC_BLESS")) {
      std::ofstream(path, std::ios::binary) << text.substr(0, dashes) << "\n----\n" << got;
      return;
    }
    EXPECT_EQ(text.substr(dashes + 6), got);
  }
  std::filesystem::path path;
};

} // namespace

extern "C" void unit_register(const char *file, const char *name, void (*test)(void)) { units().push_back({file, name, test}); }
extern "C" void unit_fail(const char *file, int line, const char *fmt, ...) {
  char text[8192];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  GTEST_MESSAGE_AT_(file, line, text, testing::TestPartResult::kNonFatalFailure);
}

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  for (const Unit &u : units()) {
    std::string suite = "unit/" + std::filesystem::path(u.file).stem().string();
    testing::RegisterTest(suite.c_str(), u.name, nullptr, nullptr, u.file, 1,
                          [u]() -> testing::Test * { return new UnitTest(u); });
  }
  std::filesystem::path root = DTC_TESTS;
  std::vector<std::filesystem::path> files;
#ifdef DTC_FILE_TESTS
  for (const char *folder : {"golden", "errors"})
    for (const auto &e : std::filesystem::recursive_directory_iterator(root / folder))
      if (e.path().extension() == ".test") files.push_back(e.path());
#endif
  std::sort(files.begin(), files.end());
  for (const auto &f : files) {
    std::string suite = std::filesystem::relative(f.parent_path(), root).string();
    testing::RegisterTest(suite.c_str(), f.stem().string().c_str(), nullptr, nullptr, f.string().c_str(), 1,
                          [f]() -> testing::Test * { return new FileTest(f); });
  }
  return RUN_ALL_TESTS();
}
