// A bootstrap over stream sockets, with rank 0 in the middle.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/connection.hpp"
#include "weft/error.hpp"

namespace weft::detail {

class StarBootstrap final : public Bootstrap {
 public:
  struct Args {
    int rank = 0;
    int size = 1;
    std::chrono::nanoseconds deadline{};
    std::string address;
    std::vector<Connection> peers;  // by rank: on rank 0 a connection to every other rank, elsewhere only [0]
  };
  explicit StarBootstrap(Args args) : args_(std::move(args)) {}

  int rank() const override { return args_.rank; }
  int size() const override { return args_.size; }
  std::chrono::nanoseconds deadline() const override { return args_.deadline; }
  std::string address() const override { return args_.address; }
  std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine) override;

  // The same as the last part of joining: under a deadline that began earlier, with the ranks missing so far.
  void finish_joining(std::string_view what, const Deadline& deadline, std::string missing);

 private:
  // Any error in it, whatever its kind, fails the meeting on all ranks (see fail()).
  std::vector<Bytes> gather(std::string_view what, std::span<const std::byte> mine, const Deadline& deadline,
                            std::string missing);
  std::vector<Bytes> gather_as_root(std::string_view what, std::span<const std::byte> mine, const Deadline& deadline);
  std::vector<Bytes> gather_as_leaf(std::string_view what, std::span<const std::byte> mine, const Deadline& deadline,
                                    std::string missing);
  void check_connection(std::string_view what, int rank, const Connection& peer);
  [[noreturn]] void refuse(std::string_view what, int rank, const Frame& frame);
  // Tells the others, and makes every later meeting fail.
  [[noreturn]] void fail(const std::string& message, Errc code = Errc::rendezvous);

  Args args_;
  std::string failure_;
};

// "rendezvous 'join': rank 2 did not come within 2 s"
std::string too_late(std::string_view what, std::string_view missing, const Deadline& deadline);
// "rank 3" or "ranks 1, 4".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace weft::detail
