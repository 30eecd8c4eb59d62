#include "support/moving_experts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft::test {
namespace {

constexpr std::uint32_t kMovingExperts = 8;

std::uint32_t places_of_rank(std::uint32_t ranks) {
  return (kMovingExperts + ranks - 1) / ranks + 2;
}

}  // namespace

ExpertPlaces MovingExperts::map(std::uint32_t number) const {
  ExpertPlaces places(std::size_t{ranks} * places_of_rank(ranks), -1);
  std::size_t step = 5 + 2 * (number % 3);  // so neither ranks nor places ascend with experts
  while (std::gcd(step, places.size()) != 1) ++step;
  const auto place = [&](std::size_t i) -> std::int32_t& { return places[(i * step + number) % places.size()]; };
  for (std::size_t i = 0; i + 1 < places.size(); ++i)
    place(i) = static_cast<std::int32_t>((i + number) % kMovingExperts);
  const std::size_t two = number * places_of_rank(ranks) % places.size();  // on one rank
  const auto lone = [&](std::size_t at) { return std::ranges::count(places, places[at]) == 1; };
  if (places[two] >= 0 && !lone(two + 1)) places[two + 1] = places[two];
  return places;
}

std::vector<std::int32_t> MovingExperts::maps(std::uint32_t first, std::uint32_t second) const {
  ExpertPlaces both = map(first);
  const ExpertPlaces other = map(second);
  both.insert(both.end(), other.begin(), other.end());
  return both;
}

PreparedMoe MovingExperts::prepared(std::uint32_t number, std::uint32_t seed) const {
  MoeCase call = of_places;
  call.translate = [places = map(number)](std::int64_t id, std::uint32_t rank, std::uint32_t token) -> std::int64_t {
    std::vector<std::int64_t> replicas;
    for (std::size_t place = 0; place < places.size(); ++place)
      if (id >= 0 && places[place] == id) replicas.push_back(static_cast<std::int64_t>(place));
    return replicas.empty() ? -1 : replicas[(rank + token) % replicas.size()];
  };
  return prepare(call, ranks, seed);
}

std::vector<MovingExperts> moving_experts(std::uint32_t ranks) {
  MoeExchangeArgs args = small_exchange();
  args.experts = ranks * places_of_rank(ranks);
  args.capacity = ranks * args.tokens * args.top_k;  // a token may name an expert several times
  MoeExchangeArgs ring = args;
  ring.path = RowPath::ring;
  std::vector<MovingExperts> all;
  for (Batch& batch :
       in_every_layout({{{.args = args, .tokens = {6, 4, 5}}}, {{.args = ring, .tokens = {6, 4, 5}}}}, ranks)) {
    MovingExperts moving{.with = batch[0].args, .of_places = std::move(batch[0]), .ranks = ranks};
    moving.with.experts = kMovingExperts;
    moving.with.maps = 2;
    moving.with.experts_of_rank = moving.maps(0, 1);
    all.push_back(std::move(moving));
  }
  return all;
}

MovingSide::MovingSide(const MoeExchange& of_places, const PreparedMoe& p, std::uint32_t rank)
    : CpuMoe(of_places, p, rank), p_(&p), rank_(rank) {}

void MovingSide::fill(const PreparedMoe& p) {
  p_ = &p;
  CpuMoe::fill(p);
}

DispatchArgs MovingSide::dispatch(std::uint32_t map) {
  DispatchArgs args = CpuMoe::dispatch();
  args.topk_ids = p_->tokens[rank_].given.data();
  args.map = map;
  return args;
}

void exchange_and_check(const MoeExchange& moving, MovingSide& side, std::uint32_t map) {
  const DispatchHandle handle = moving.dispatch(side.dispatch(map));
  side.check_dispatch();
  moving.combine(side.combine(handle));
  side.check_combine();
}

void on_moving_exchanges(
    const MovingExperts& of,
    const std::function<void(MoeExchange& moving, const MoeExchange& of_places, std::uint32_t rank)>& body) {
  expect_all_well(run_world(static_cast<int>(of.ranks), smallest_buffers(), [&](Communicator& communicator, int rank) {
    MoeExchange moving = MoeExchange::create(communicator, of.with);
    const MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
    body(moving, of_places, static_cast<std::uint32_t>(rank));
  }));
}

}  // namespace weft::test
