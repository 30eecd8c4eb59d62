#include "support/cases.hpp"

#include <array>
#include <stdexcept>
#include <tuple>

#include "support/bytes.hpp"
#include "support/memo.hpp"
#include "tuning/tuning.hpp"

namespace weft::test {
namespace {

// The finaliser of splitmix64.
std::uint64_t mix64(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t h = a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u + c * 0x8cb92ba72f3d8dd7u + 1;
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  return h ^ h >> 31;
}
std::uint32_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return static_cast<std::uint32_t>(mix64(a, b, c));
}

std::uint64_t integer(DataType type, int value) {
  if (!is_floating(type)) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  return round_to(format_of(type), value);
}

// `place` is the same on all ranks. At a quarter of all places most ranks have plus or minus one large number, and the
// others have small ones. The large ones cancel, and the rest depends on the order of the sum.
std::uint32_t random_number(DataType type, std::uint32_t h, std::uint32_t place) {
  const Format f = format_of(type);
  const std::uint32_t sign = (h & 1) != 0 ? f.sign_bit() : 0;
  const auto number = [&](int exponent, std::uint32_t fraction) {
    return sign | static_cast<std::uint32_t>(exponent + f.bias()) << f.fraction_bits |
           (fraction & ((1u << f.fraction_bits) - 1));
  };
  if (place % 4 == 0) return h % 3 != 0 ? number(8, place >> 8) : number(-12, h >> 8);
  return number(static_cast<int>(h >> 1 & 15) - 12, h >> 8);  // 2^−12 … 2^3
}

// The lower bits of each are special, too: an element has as many of them as its type.
std::uint64_t special_integer(std::uint32_t h) {
  constexpr std::array<std::uint64_t, 9> values{0,
                                                1,
                                                0xffffffffffffffffu,
                                                0x7fffffffffffffffu,
                                                0x8000000000000000u,
                                                0x800000007fffffffu,
                                                0x7fffffff80000000u,
                                                0x7f7f7f7f7f7f7f7fu,
                                                0xffffff8080808080u};
  return values[h % values.size()];
}

std::uint32_t special_number(DataType type, std::uint32_t h) {
  const Format f = format_of(type);
  const std::uint32_t quiet = f.infinity() | 1u << (f.fraction_bits - 1);
  // Mostly zeros, so that sums are not all NaN.
  const std::array<std::uint32_t, 16> values{0,
                                             f.sign_bit(),
                                             0,
                                             f.sign_bit(),
                                             f.sign_bit(),
                                             1,  // the smallest subnormal
                                             f.sign_bit() | 1,
                                             (1u << f.fraction_bits) - 1,  // the largest subnormal
                                             1u << f.fraction_bits,        // the smallest normal
                                             f.infinity() - 1,             // the largest number
                                             f.infinity(),
                                             f.sign_bit() | f.infinity(),
                                             quiet,
                                             f.infinity() | 1,  // a signalling NaN
                                             f.nan(),
                                             f.sign_bit() | f.nan()};  // all ones
  return values[h % values.size()];
}

std::uint64_t element(const Case& c, int rank, std::size_t i) {
  const std::uint64_t whole = mix64(c.seed, static_cast<std::uint64_t>(rank), i);
  const auto h = static_cast<std::uint32_t>(whole);
  switch (c.fill) {
    case Fill::integers:
      return integer(c.type, static_cast<int>(h % 15) - 7);
    case Fill::random:
      return is_floating(c.type) ? random_number(c.type, h, mix(c.seed, 1u << 20, i)) : whole;
    case Fill::bits:
      return whole;
    case Fill::special: {
      // Also whole packs of one value, above all of the resting word.
      const bool alike = mix(c.seed, 77, i / 16) % 3 == 0;
      const std::uint32_t choice = alike ? mix(c.seed, static_cast<std::uint64_t>(rank) + 99, i / 16) : h;
      return is_floating(c.type) ? special_number(c.type, choice) : special_integer(choice);
    }
  }
  return 0;
}

}  // namespace

std::string describe(const Case& c) {
  constexpr const char* fills[] = {"integers", "random", "bits", "special"};
  return fmt::format("{} {}[{}] {} of {}{}, shifts {} and {}, seed {}, launch {}×{}", name(c.op), name(c.type), c.count,
                     name(c.algorithm), fills[static_cast<int>(c.fill)], c.in_place ? ", in place" : "", c.input_shift,
                     c.output_shift, c.seed, c.launch.blocks, c.launch.threads);
}

Bytes input_of(const Case& c, int rank) {
  static Memo<std::tuple<std::size_t, DataType, Fill, std::uint32_t, int>, Bytes> inputs(std::size_t{64} << 20);
  const std::size_t size = c.count * size_of(c.type);
  return *inputs.get({c.count, c.type, c.fill, c.seed, rank}, size, [&] {
    Bytes bytes(size);
    for (std::size_t i = 0; i < c.count; ++i) put(bytes, c.type, i, element(c, rank, i));
    return bytes;
  });
}

Prepared prepare(const Case& c, int ranks) {
  Prepared prepared{.call = c, .inputs = {}, .expected = {}};
  for (int rank = 0; rank < ranks; ++rank) prepared.inputs.push_back(input_of(c, rank));
  prepared.expected = reduce(c.type, c.op, prepared.inputs);
  return prepared;
}

std::vector<Prepared> prepare_all(const std::vector<Case>& cases, int ranks) {
  std::vector<Prepared> all;
  for (const Case& c : cases) all.push_back(prepare(c, ranks));
  return all;
}

void expect_equal(const Case& c, std::span<const std::byte> wanted, std::span<const std::byte> got) {
  if (same_bytes(wanted, got)) return;
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = c.count; i-- > 0;) {
    if (get(wanted, c.type, i) == get(got, c.type, i)) continue;
    ++wrong;
    first = i;
  }
  throw std::runtime_error(fmt::format("{}: {} elements wrong, first [{}]: {:#x} instead of {:#x}", describe(c), wrong,
                                       first, get(got, c.type, first), get(wanted, c.type, first)));
}

Tensors::Tensors(const Case& c, const Bytes& content)
    : input(content.size(), c.input_shift * size_of(c.type)),
      output(content.size(), c.output_shift * size_of(c.type)),
      in_place(c.in_place) {
  Guarded& source = in_place ? output : input;
  copy_bytes(content, source.content());
}

void Tensors::check(const Prepared& prepared, int rank) {
  const Case& c = prepared.call;
  expect_equal(c, prepared.expected, output.content());
  if (!in_place) {
    const Bytes& before = prepared.inputs[static_cast<std::size_t>(rank)];
    if (!same_bytes(before, input.content())) throw std::runtime_error(describe(c) + ": the input was changed");
  }
  for (Guarded* tensor : {&input, &output}) {
    if (const std::string damage = tensor->damage(); !damage.empty()) {
      throw std::runtime_error(describe(c) + ": " + damage);
    }
  }
}

AllReduceArgs arguments(const Case& c, const void* input, void* output) {
  return {.input = c.in_place ? output : input,
          .output = output,
          .count = c.count,
          .type = c.type,
          .op = c.op,
          .algorithm = c.algorithm,
          .stream = nullptr,
          .tag = c.tag,
          .launch = c.launch};
}

std::vector<Mismatch> every_mismatch(Algorithm algorithm) {
  const Algorithm other = algorithm == Algorithm::one_shot ? Algorithm::two_shot : Algorithm::one_shot;
  std::vector<Mismatch> all = {
      {"one element more", [](Case& c) { c.count += 1; }},
      {"several pieces more", [](Case& c) { c.count += 30'000; }},
      {"nothing", [](Case& c) { c.count = 0; }},
      {"type of the same size", [](Case& c) { c.type = DataType::f16; }},
      {"type of another size", [](Case& c) { c.type = DataType::f32; }},
      {"algorithm", [other](Case& c) { c.algorithm = other; }},
      {"tag", [](Case& c) { c.tag = 9; }},
  };
  if (detail::is_multimem(algorithm)) return all;  // they only sum floating types
  all.push_back({"another wire format", [](Case& c) { c.type = DataType::i32; }});
  all.push_back({"type of eight bytes", [](Case& c) { c.type = DataType::i64; }});
  all.push_back({"op", [](Case& c) { c.op = ReduceOp::max; }});
  all.push_back({"op that also adds", [](Case& c) { c.op = ReduceOp::avg; }});
  return all;
}

void run_on_cpu_rank(const Group& group, const Prepared& prepared, int rank) {
  Tensors tensors(prepared.call, prepared.inputs.at(static_cast<std::size_t>(rank)));
  all_reduce(group, arguments(prepared.call, tensors.input.content().data(), tensors.output.content().data()));
  tensors.check(prepared, rank);
}

}  // namespace weft::test
