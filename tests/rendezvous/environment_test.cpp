#include "rendezvous/environment.hpp"

#include <gtest/gtest.h>

#include <map>

#include "support/ranks.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto entry = variables.find(name);
    return entry == variables.end() ? std::nullopt : std::optional(entry->second);
  });
}

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables torchrun = {{"RANK", "5"},
                            {"WORLD_SIZE", "16"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "node3"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "job"}};
const Variables openmpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"PMIX_NAMESPACE", "2147483649"}};
const Variables pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables srun = {{"SLURM_PROCID", "3"},
                        {"SLURM_NTASKS", "8"},
                        {"SLURM_STEP_NUM_TASKS", "8"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_JOB_ID", "77"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NODELIST", "gpu[07-09,12],login1"}};

struct Launched {
  std::string name;
  Variables variables;
  int rank, world_size, local_rank;
  std::string host, launcher;
  int port = -1;  // −1: the port that follows from the job
};

class Launchers : public testing::TestWithParam<Launched> {};
INSTANTIATE_TEST_SUITE_P(
    All, Launchers,
    testing::Values(
        Launched{"none", {}, 0, 1, 0, "127.0.0.1", "none", 0},
        Launched{"unrelated", {{"MASTER_ADDR", "x"}, {"LOCAL_RANK", "3"}}, 0, 1, 0, "127.0.0.1", "none", 0},
        Launched{"torchrun", torchrun, 5, 16, 1, "node3", "torchrun", 30500},
        Launched{"torchrun_high_port", with(torchrun, {{"MASTER_PORT", "65000"}}), 5, 16, 1, "node3", "torchrun",
                 64000},
        Launched{"torchrun_no_local", without(torchrun, "LOCAL_RANK"), 5, 16, 0, "node3", "torchrun", 30500},
        Launched{"torchrun_alone", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 0, 1, 0, "127.0.0.1", "torchrun"},
        Launched{"torchrun_one_host", with(torchrun, {{"LOCAL_WORLD_SIZE", "16"}}), 5, 16, 1, "127.0.0.1", "torchrun",
                 30500},
        Launched{"torchrun_hosts", with(torchrun, {{"LOCAL_WORLD_SIZE", "8"}}), 5, 16, 1, "node3", "torchrun", 30500},
        Launched{"torchrun_one_host_moved",
                 with(torchrun, {{"LOCAL_WORLD_SIZE", "16"}, {"WEFT_RENDEZVOUS", "node9:1234"}}), 5, 16, 1, "node9",
                 "torchrun", 1234},
        Launched{"torchrun_in_slurm", with(srun, torchrun), 5, 16, 1, "node3", "torchrun", 30500},
        Launched{"moved", with(torchrun, {{"WEFT_RENDEZVOUS", "node9:1234"}}), 5, 16, 1, "node9", "torchrun", 1234},
        Launched{"moved_v6", with(torchrun, {{"WEFT_RENDEZVOUS", "[fd00::1]:1"}}), 5, 16, 1, "fd00::1", "torchrun", 1},
        Launched{"openmpi", openmpi, 2, 4, 2, "127.0.0.1", "Open MPI"},
        Launched{"openmpi_hosts", with(openmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"WEFT_RENDEZVOUS", "a:1"}}), 2,
                 4, 2, "a", "Open MPI", 1},
        Launched{"openmpi_in_slurm", with(srun, openmpi), 2, 4, 2, "127.0.0.1", "Open MPI"},
        Launched{"pmi", pmi, 1, 2, 1, "127.0.0.1", "PMI"},
        Launched{"pmi_in_slurm", with(with(srun, {{"SLURM_STEP_NUM_TASKS", "1"}}), pmi), 1, 2, 1, "127.0.0.1", "PMI"},
        Launched{"srun", srun, 3, 8, 1, "gpu07", "srun"},
        Launched{"srun_one_host", with(srun, {{"SLURM_STEP_NUM_NODES", "1"}}), 3, 8, 1, "127.0.0.1", "srun"},
        Launched{"srun_hosts", with(srun, {{"SLURM_STEP_NUM_NODES", "4"}}), 3, 8, 1, "gpu07", "srun"},
        Launched{"srun_pmi2", with(srun, {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}), 3, 8, 1, "gpu07", "srun"},
        Launched{"srun_part_of_job", with(srun, {{"SLURM_NTASKS", "64"}}), 3, 8, 1, "gpu07", "srun"},
        Launched{
            "srun_old",
            without(without(with(srun, {{"SLURM_NODELIST", "c1,c2"}}), "SLURM_STEP_NODELIST"), "SLURM_STEP_NUM_TASKS"),
            3, 8, 1, "c1", "srun"},
        Launched{"sbatch_without_srun", without(srun, "SLURM_STEP_ID"), 0, 1, 0, "127.0.0.1", "none", 0}),
    [](const auto& info) { return info.param.name; });

TEST_P(Launchers, AreUnderstood) {
  const Launched& expected = GetParam();
  const LaunchEnvironment got = read(expected.variables);
  EXPECT_EQ(got.rank, expected.rank);
  EXPECT_EQ(got.world_size, expected.world_size);
  EXPECT_EQ(got.local_rank, expected.local_rank);
  EXPECT_EQ(got.host, expected.host);
  EXPECT_EQ(got.launcher, expected.launcher);
  if (expected.port >= 0) {
    EXPECT_EQ(got.port, expected.port);
  } else {
    EXPECT_GE(got.port, 20000);
    EXPECT_LT(got.port, 30000);
  }
}

TEST(Environment, FirstHostOfAList) {
  const std::map<std::string, std::string> lists = {
      {"node1", "node1"},         {"a,b[1-2]", "a"},        {"gpu[3]", "gpu3"},
      {"gpu[003-010]", "gpu003"}, {"gpu[4,6-9]", "gpu4"},   {"r[1-2]n[3-4]", "r1n3"},
      {"r[1-2]-ib", "r1-ib"},     {"r[1-2]-ib,x", "r1-ib"}, {"x-1.example.org", "x-1.example.org"}};
  for (const auto& [list, host] : lists) {
    EXPECT_EQ(read(with(srun, {{"SLURM_STEP_NODELIST", list}})).host, host) << list;
  }
}

TEST(Environment, JobsHavePlacesOfTheirOwn) {
  const auto place = [](const Variables& variables) {
    const LaunchEnvironment environment = read(variables);
    return std::pair(environment.port, environment.job);
  };
  EXPECT_EQ(place(srun), place(with(srun, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})));
  EXPECT_NE(place(srun), place(with(srun, {{"SLURM_STEP_ID", "1"}})));
  EXPECT_NE(place(srun), place(with(srun, {{"SLURM_JOB_ID", "78"}})));
  EXPECT_NE(place(openmpi), place(with(openmpi, {{"PMIX_NAMESPACE", "2"}})));
  EXPECT_NE(place(torchrun), place(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})));
}

TEST(Environment, RanksOnOtherHostsAreKnownWhereTheLauncherTells) {
  const auto other_hosts = [](const Variables& variables) { return read(variables).other_hosts; };
  EXPECT_TRUE(other_hosts(with(torchrun, {{"LOCAL_WORLD_SIZE", "8"}})));
  EXPECT_TRUE(other_hosts(with(srun, {{"SLURM_STEP_NUM_NODES", "4"}})));
  EXPECT_TRUE(other_hosts(with(openmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"WEFT_RENDEZVOUS", "a:1"}})));
  for (const Variables& unknown : {torchrun, srun, openmpi, pmi}) EXPECT_FALSE(other_hosts(unknown));
}

TEST(Environment, WhereThePortComesFromIsTold) {
  const auto origin = [](const Variables& variables) { return read(variables).port_origin; };
  EXPECT_EQ(origin(torchrun), "MASTER_PORT + 1000");
  EXPECT_EQ(origin(with(torchrun, {{"MASTER_PORT", "65000"}})), "MASTER_PORT - 1000");
  EXPECT_EQ(origin(srun), "which follows from the job; WEFT_RENDEZVOUS=host:port names another");
  EXPECT_EQ(origin(with(srun, {{"WEFT_RENDEZVOUS", "a:1"}})), "of WEFT_RENDEZVOUS");
}

TEST(Environment, MistakesAreNamed) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {without(torchrun, "RANK"), "RANK is not set"},
      {without(torchrun, "WORLD_SIZE"), "WORLD_SIZE is not set"},
      {without(torchrun, "MASTER_ADDR"), "MASTER_ADDR is not set"},
      {without(torchrun, "MASTER_PORT"), "MASTER_PORT is not set"},
      {with(torchrun, {{"RANK", "16"}}), "RANK is '16', allowed is 0 … 15"},
      {with(torchrun, {{"RANK", "-1"}}), "RANK is '-1', allowed is 0 … 15"},
      {with(torchrun, {{"RANK", "5x"}}), "RANK is '5x'"},
      {with(torchrun, {{"RANK", ""}}), "RANK is not set"},
      {with(torchrun, {{"LOCAL_RANK", "two"}}), "LOCAL_RANK is 'two'"},
      {with(torchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE is '0', allowed is 1 … 72"},
      {with(torchrun, {{"WORLD_SIZE", "99999999999999"}}), "WORLD_SIZE is '99999999999999'"},
      {with(torchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT is '65536', allowed is 1 … 65535"},
      {with(torchrun, {{"LOCAL_WORLD_SIZE", "all"}}), "LOCAL_WORLD_SIZE is 'all', allowed is 1 … 72"},
      {with(torchrun, {{"WEFT_RENDEZVOUS", "node9"}}), "WEFT_RENDEZVOUS is 'node9'"},
      {with(torchrun, {{"WEFT_RENDEZVOUS", ":99"}}), "WEFT_RENDEZVOUS is ':99'"},
      {with(torchrun, {{"WEFT_RENDEZVOUS", "::1:99"}}), "WEFT_RENDEZVOUS is '::1:99'"},
      {with(torchrun, {{"WEFT_RENDEZVOUS", "a:0"}}), "the port in WEFT_RENDEZVOUS is '0', allowed is 1 … 65535"},
      {without(openmpi, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is not set"},
      {with(openmpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), "set WEFT_RENDEZVOUS=host:port"},
      {without(pmi, "PMI_SIZE"), "PMI_SIZE is not set"},
      {with(pmi, {{"MPI_LOCALNRANKS", "1"}}), "MPI_LOCALNRANKS is 1 of 2 ranks"},
      {without(srun, "SLURM_JOB_ID"), "SLURM_JOB_ID is not set"},
      {without(srun, "SLURM_STEP_NODELIST"), "SLURM_NODELIST is not set"},
      {with(srun, {{"SLURM_STEP_NODELIST", "gpu[07"}}), "'gpu[07'"},
      {with(srun, {{"SLURM_STEP_NODELIST", "gpu[]"}}), "'gpu[]'"},
      {with(srun, {{"SLURM_STEP_NODELIST", ",gpu07"}}), "SLURM_STEP_NODELIST is ',gpu07', and names no first host"},
  };
  for (const auto& [variables, part] : cases) {
    try {
      read(variables);
      ADD_FAILURE() << "accepted, instead of: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Errc::rendezvous);
      test::expect_says(e.what(), part);
    }
  }
}

}  // namespace
}  // namespace weft::detail
