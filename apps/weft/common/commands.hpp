// The commands of `weft`. Each add_…() adds its options to the parser. The returned function runs the command and
// returns the exit code: 0 success, 1 a failure or a wrong result. Bad usage throws Errc::invalid_argument.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace weft::cli {

using Command = std::function<int()>;

Command add_info(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_all_reduce(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_gather(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_logits(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_dp_attention(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_norm(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_moe(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_moe_layer(CLI::App& app, const std::vector<std::string>& arguments);
Command add_bench_host(CLI::App& app, const std::vector<std::string>& arguments);
Command add_tune(CLI::App& app, const std::vector<std::string>& arguments);
Command add_verify(CLI::App& app, const std::vector<std::string>& arguments);
Command add_simulate(CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace weft::cli
