#include "sim/all_reduce.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/numeric.hpp"
#include "core/plan.hpp"

namespace weft::sim {
namespace {

using detail::Element;

// Bits of one element: different for every call, rank and place, so that nothing stale goes unnoticed.
std::uint32_t element_bits(Payload payload, DataType type, unsigned call, unsigned rank, std::uint64_t i) {
  Random random(call * 1'000'003u + rank * 10'007u + i);
  if (type == DataType::i32) {
    const bool special = payload == Payload::special && random.below(2) == 0;
    return special ? 0xffffffffu : static_cast<std::uint32_t>(random.next());
  }
  const bool narrow = type == DataType::bf16;
  if (payload == Payload::special) {
    constexpr std::uint32_t specials[] = {0xffffffffu, 0xffffffffu, 0x80000000u, 0u,
                                          0x7fc00000u, 0xff800000u, 0x00000001u};
    const unsigned choice = random.below(9);
    if (choice < std::size(specials)) return narrow ? specials[choice] >> 16 : specials[choice];
  }
  // A power of two from a wide range makes sums depend on their order; else numbers of one size.
  const std::uint32_t exponent = payload == Payload::rounding ? 100 + random.below(56) : 127;
  const std::uint32_t sign = payload == Payload::rounding ? random.below(2) << 31 : 0;
  const std::uint32_t bits = sign | exponent << 23 | static_cast<std::uint32_t>(random.next() >> 41);
  return narrow ? bits >> 16 : bits;
}

template <DataType type>
std::uint32_t sum_of(const std::vector<std::uint32_t>& terms) {
  using Storage = typename Element<type>::Storage;
  auto sum = Element<type>::widen(static_cast<Storage>(terms[0]));
  for (std::size_t i = 1; i < terms.size(); ++i) sum = sum + Element<type>::widen(static_cast<Storage>(terms[i]));
  return Element<type>::narrow(sum);
}

std::uint32_t sum_of(DataType type, const std::vector<std::uint32_t>& terms) {
  switch (type) {
    case DataType::bf16:
      return sum_of<DataType::bf16>(terms);
    case DataType::f16:
      return sum_of<DataType::f16>(terms);
    case DataType::f32:
      return sum_of<DataType::f32>(terms);
    case DataType::i32:
      return sum_of<DataType::i32>(terms);
  }
  return 0;
}

// What equal calls have in common and different ones do not; production's is core/fingerprint's affair.
std::uint32_t fingerprint(const CallSetup& call) {
  return static_cast<std::uint32_t>(0x57ef7000u + call.count);
}

}  // namespace

AllReduceProgram::AllReduceProgram(const Setup& setup) : setup_(setup), world_(setup) {
  const Machine::Args args = world_.machine_args();
  machine_ = std::make_unique<Machine>(args);
  world_.build(machine_->memory());
  for (const auto& group : world_.groups()) {
    kernels_.push_back(find_kernel({.algorithm = setup.algorithm,
                                    .type = setup.type,
                                    .ranks = static_cast<unsigned>(group.size()),
                                    .atomic_bytes = setup.atomic_bytes,
                                    .one_thread = setup.one_thread}));
  }
  stream_of_.resize(args.rank_of.size());
  for (unsigned i = 0; i < world_.streams().size(); ++i) {
    const World::Stream& stream = world_.streams()[i];
    const unsigned threads = setup.one_thread ? 1 : stream.blocks * stream.threads;
    for (unsigned k = 0; k < threads; ++k) stream_of_[stream.first_thread + k] = i;
  }
  tensors_.resize(setup.calls.size() * setup.ranks);
  for (unsigned call = 0; call < setup.calls.size(); ++call) {
    for (const unsigned rank : world_.groups()[setup.calls[call].group]) fill(call, rank);
  }
}

void AllReduceProgram::fill(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.calls[call];
  const auto& members = world_.groups()[spec.group];
  const std::size_t element = size_of(setup_.type);
  const std::size_t shift = spec.misaligned ? element : 0;
  // A guard of one pack in front of and behind each tensor.
  const std::size_t bytes = (spec.count * element + shift + 15) / 16 * 16 + 32;
  Tensors& t = tensors(call, rank);
  t.initial.assign(bytes / 4 * (spec.in_place ? 1 : 2) + 4, 0xa5a5a5a5u);
  t.memory = t.initial;
  // Vectors of words are not aligned to packs.
  const std::size_t skew = (16 - reinterpret_cast<std::uintptr_t>(t.memory.data()) % 16) % 16;
  const std::size_t input = skew + 16 + shift;
  t.output_offset = spec.in_place ? input : input + bytes;
  std::vector<std::byte> expected(spec.count * element);
  for (std::uint64_t i = 0; i < spec.count; ++i) {
    std::vector<std::uint32_t> terms;
    for (unsigned k = 0; k < members.size(); ++k) {
      terms.push_back(element_bits(setup_.payload, setup_.type, call, members[k], i));
      if (members[k] == rank) {
        std::memcpy(reinterpret_cast<std::byte*>(t.initial.data()) + input + i * element, &terms.back(), element);
      }
    }
    const std::uint32_t sum = sum_of(setup_.type, terms);
    std::memcpy(expected.data() + i * element, &sum, element);
  }
  t.expected = t.initial;
  std::memcpy(reinterpret_cast<std::byte*>(t.expected.data()) + t.output_offset, expected.data(), expected.size());
  auto* const memory = reinterpret_cast<std::byte*>(t.memory.data());
  t.work = {.input = memory + input, .output = memory + t.output_offset, .count = spec.count};
}

Failure AllReduceProgram::run(Scheduler& scheduler, const std::optional<Stop>& stop) {
  for (Tensors& t : tensors_) std::copy(t.initial.begin(), t.initial.end(), t.memory.begin());
  return machine_->run(*this, scheduler, stop);
}

void AllReduceProgram::run(unsigned thread, unsigned launch) {
  const World::Stream& stream = world_.streams()[stream_of_[thread]];
  const unsigned call = stream.calls[launch];
  const unsigned group = setup_.calls[call].group;
  const unsigned within = thread - stream.first_thread;
  const Grid grid = world_.grid(call, stream.rank);
  const Place place{.block = within / stream.threads,
                    .blocks = grid.blocks,
                    .thread = within % stream.threads,
                    .threads = grid.threads};
  const detail::Call about{.channel = &world_.channel(group, stream.rank),
                           .local = world_.local(group, stream.rank),
                           .fingerprint = fingerprint(setup_.calls[call])};
  kernels_[group](*machine_, place, about, tensors(call, stream.rank).work);
}

std::string AllReduceProgram::check() {
  for (unsigned call = 0; call < setup_.calls.size(); ++call) {
    for (const unsigned rank : world_.groups()[setup_.calls[call].group]) {
      const Tensors& t = tensors(call, rank);
      if (t.memory == t.expected) continue;
      std::size_t word = 0;
      while (t.memory[word] == t.expected[word]) ++word;
      const std::string fault = world_.check_rest(machine_->memory());
      return fmt::format("call {} on rank {}: word {} of the tensors is {:08x}, not {:08x}{}{}", call, rank,
                         static_cast<long>(word) - static_cast<long>(t.output_offset / 4), t.memory[word],
                         t.expected[word], fault.empty() ? "" : "; ", fault);
    }
  }
  return world_.check_rest(machine_->memory());
}

AllReduceKernel find_kernel(const KernelQuery& query) {
  switch (query.atomic_bytes) {
    case 4:
      return find_kernel_4(query);
    case 8:
      return find_kernel_8(query);
    default:
      return find_kernel_16(query);
  }
}

}  // namespace weft::sim
