// Sizes and tables.
#include <gtest/gtest.h>

#include "common/sizes.hpp"
#include "common/table.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

TEST(Sizes, Bytes) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("512"), 512u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("64kB"), 65536u);
  EXPECT_EQ(parse_bytes("64KiB"), 65536u);
  EXPECT_EQ(parse_bytes("1.5M"), 1572864u);
  EXPECT_EQ(parse_bytes("3G"), 3221225472u);
  EXPECT_EQ(parse_bytes_list("16K,1M"), (std::vector<std::uint64_t>{16384, 1048576}));
}

TEST(Sizes, BadBytes) {
  for (const char* text : {"", "K", "-1", "1X", "1KX", "1 K", "64K ", "0.3", "1e3", "nan", "inf", "0x10", "9000000G"})
    EXPECT_THROW(parse_bytes(text), Error) << '"' << text << '"';
  for (const char* text : {"16K,", ",16K", "16K,,1M", ""}) EXPECT_THROW(parse_bytes_list(text), Error) << text;
}

TEST(Sizes, Counts) {
  EXPECT_EQ(parse_counts("1,8,256", "--tokens", 256), (std::vector<std::int64_t>{1, 8, 256}));
  for (const char* text : {"", "0", "-1", "1.5", "a", "1,", "1 ,2", "99999999999999999999", "257"})
    EXPECT_THROW(parse_counts(text, "--tokens", 256), Error) << '"' << text << '"';
  try {
    parse_counts("1,x", "--tokens", 256);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "--tokens: \"x\" must be a whole number between 1 and 256, or several with commas");
  }
}

TEST(Sizes, Format) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(14336), "14 KB");
  EXPECT_EQ(format_bytes(1024), "1 KB");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(3062 * 8192 * 2), "47.84 MB");
  EXPECT_EQ(format_bytes(1572864), "1.5 MB");
  EXPECT_EQ(format_bytes(100u << 20), "100 MB");
}

TEST(Tables, NumbersLineUpOnTheRight) {
  Table table({"size", "µs", "best"});
  table.add({"64 KB", "4.31", "one-shot"});
  table.add({"1 MB", "12.0", "NCCL"});
  EXPECT_EQ(table.text(),
            " size    µs  best\n"
            "64 KB  4.31  one-shot\n"
            " 1 MB  12.0  NCCL\n");
}

TEST(Tables, MissingCellsAreEmptyAndExtraOnesAMistake) {
  Table table({"a", "b"});
  table.add({"1"});
  EXPECT_EQ(table.text(), "a  b\n1\n");
  EXPECT_THROW(table.add({"1", "2", "3"}), std::logic_error);
}

TEST(Tables, CsvQuotes) {
  Table table({"shape", "note"});
  table.add({"[1, 2]", "say \"no\""});
  table.add({"plain", ""});
  EXPECT_EQ(table.csv(), "shape,note\n\"[1, 2]\",\"say \"\"no\"\"\"\nplain,\n");
}

// A table that is too wide for a terminal continues below, with its keys again.
TEST(Tables, WideOnesGoOnBelow) {
  Table table({"size", "load", "one-shot", "two-shot", "best"}, 2);
  table.add({"1 KB", "busy", "5.26 (2.66…11.8)", "7.89 (7.17…44.6)", "one-shot"});
  EXPECT_EQ(table.text(46),
            "size  load          one-shot          two-shot\n"
            "1 KB  busy  5.26 (2.66…11.8)  7.89 (7.17…44.6)\n"
            "\n"
            "size  load  best\n"
            "1 KB  busy  one-shot\n");
  EXPECT_NE(table.text(45).find("\nsize  load          two-shot  best\n"), std::string::npos) << table.text(45);
  EXPECT_EQ(table.text().find("\n\n"), std::string::npos);
  EXPECT_EQ(Table({"a", "b"}).text(1), "a\n\na  b\n");  // at least one column
}

}  // namespace
}  // namespace weft::cli
