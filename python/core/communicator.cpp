// Communicators: their options, how ranks meet, and the life of their memory.
#include <chrono>

#include "binding.hpp"

namespace weft::python {

namespace {

using Seconds = std::chrono::duration<double>;

// Python's deadlines are seconds; None and 0 stand for ever.
std::chrono::nanoseconds nanoseconds_of(const char* argument, std::optional<double> seconds) {
  if (!seconds) return std::chrono::nanoseconds(0);
  constexpr double kMost = 1e9;
  if (!(*seconds >= 0 && *seconds <= kMost))
    reject(fmt::format("{} is {} s; it must be 0 … {}", argument, *seconds, kMost));
  return std::chrono::ceil<std::chrono::nanoseconds>(Seconds(*seconds));  // 0 would be for ever
}

// The constructor's options by name: to show them, and to pass them to other processes.
nb::dict options_of(const Config& config) {
  nb::dict options;
  options["device"] = word_of(config.device);
  options["cuda_device"] = config.cuda_device;
  options["deadline"] = Seconds(config.deadline).count();
  options["rendezvous_deadline"] = Seconds(config.rendezvous_deadline).count();
  options["one_shot_bytes"] = config.one_shot_bytes;
  options["two_shot_bytes"] = config.two_shot_bytes;
  options["max_groups"] = config.max_groups;
  options["group_one_shot_bytes"] = config.group_one_shot_bytes;
  options["group_two_shot_bytes"] = config.group_two_shot_bytes;
  options["small_buffers"] = config.small_buffers;
  options["order_streams"] = config.order_streams;
  options["multicast"] = config.multicast;
  options["tuning_file"] = config.tuning_file;
  options["name"] = config.name;
  return options;
}

}  // namespace

void bind_communicator(nb::module_& module) {
  const Config defaults;
  nb::class_<Config>(module, "Config", R"doc(
Options of a communicator. All ranks must pass the same values, except `cuda_device`, `rendezvous_deadline`,
`order_streams` and `tuning_file`. Creation finds a difference (Errc.rendezvous).

device: "automatic" (CUDA if this build and machine can, else CPU), "cpu" or "cuda".
cuda_device: number of this rank's GPU; −1: LOCAL_RANK (from_environment), the rank (local), else the current device.
deadline: seconds that one wait inside of an operation may last before the call fails with Errc.timeout; 0 or None: for
    ever. It also applies to captured graphs. A wait of a tenth of it is logged as a warning while it goes on; without
    one, a wait of 30 s.
rendezvous_deadline: seconds that creation, split, acquire and every other meeting of the hosts may take.
one_shot_bytes, two_shot_bytes: the largest message that these algorithms take in one piece. They decide the memory
    taken, which Communicator.memory tells. 0: chosen by device and number of ranks.
max_groups, group_one_shot_bytes, group_two_shot_bytes: most calls of split(), 0 … 63, and the limits of each group.
small_buffers: on GPUs, small buffers for the world: with max_groups=0 at most 32 MiB on up to eight ranks.
order_streams: for GPUs: a call on another stream than the group's call before waits for that call, by an event that each
    call records. Otherwise the caller orders the calls of one group on several streams.
multicast: binds the memory to NVLink's switches, for the algorithms multimem_one_shot and multimem_two_shot alone.
tuning_file: a table that `weft tune` wrote; rank 0's is used. Empty: the tables that are built in.
name: tells this communicator apart from others that the same processes create, in several threads for example.)doc")
      .def(
          "__init__",
          [defaults](Config* self, Word<Device> device, int cuda_device, std::optional<double> deadline,
                     std::optional<double> rendezvous_deadline, std::size_t one_shot_bytes, std::size_t two_shot_bytes,
                     int max_groups, std::size_t group_one_shot_bytes, std::size_t group_two_shot_bytes,
                     bool small_buffers, bool order_streams, bool multicast, const std::string& tuning_file,
                     const std::string& name) {
            Config config = defaults;
            config.device = value_of("device", device);
            config.cuda_device = cuda_device;
            config.deadline = nanoseconds_of("deadline", deadline);
            config.rendezvous_deadline = nanoseconds_of("rendezvous_deadline", rendezvous_deadline);
            config.one_shot_bytes = one_shot_bytes;
            config.two_shot_bytes = two_shot_bytes;
            config.max_groups = max_groups;
            config.group_one_shot_bytes = group_one_shot_bytes;
            config.group_two_shot_bytes = group_two_shot_bytes;
            config.small_buffers = small_buffers;
            config.order_streams = order_streams;
            config.multicast = multicast;
            config.tuning_file = tuning_file;
            config.name = name;
            new (self) Config(std::move(config));
          },
          nb::kw_only(), nb::arg("device") = "automatic", nb::arg("cuda_device") = defaults.cuda_device,
          nb::arg("deadline").none() = Seconds(defaults.deadline).count(),
          nb::arg("rendezvous_deadline").none() = Seconds(defaults.rendezvous_deadline).count(),
          nb::arg("one_shot_bytes") = defaults.one_shot_bytes, nb::arg("two_shot_bytes") = defaults.two_shot_bytes,
          nb::arg("max_groups") = defaults.max_groups, nb::arg("group_one_shot_bytes") = defaults.group_one_shot_bytes,
          nb::arg("group_two_shot_bytes") = defaults.group_two_shot_bytes,
          nb::arg("small_buffers") = defaults.small_buffers, nb::arg("order_streams") = defaults.order_streams,
          nb::arg("multicast") = defaults.multicast, nb::arg("tuning_file") = defaults.tuning_file,
          nb::arg("name") = defaults.name)
      .def_prop_ro("options", options_of, nb::sig("def options(self) -> dict[str, typing.Any]"),
                   "All of them by name, as the constructor takes them.")
      .def(
          "__eq__",
          [](const Config& self, nb::handle other) {
            return nb::isinstance<Config>(other) && options_of(self).equal(options_of(nb::cast<const Config&>(other)));
          },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__",
           [](const Config& self) {
             std::string text;
             for (const auto& [name, value] : options_of(self))
               text += fmt::format("{}{}={}", text.empty() ? "" : ", ", nb::str(name).c_str(), nb::repr(value).c_str());
             return fmt::format("weft.Config({})", text);
           })
      // Processes that multiprocessing spawns get it by pickle.
      .def(
          "__reduce__",
          [](const Config& self) {
            return nb::make_tuple(nb::module_::import_("weft._records").attr("config_of"),
                                  nb::make_tuple(options_of(self)));
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));

  module.def("use_nccl", &use_nccl, nb::arg("file"), R"doc(
Names a file of NCCL for this process. It is taken when the first GPU rank is made, if the process has no copy then and
the variable WEFT_NCCL is not set. `import weft` names that of the environment's package nvidia-nccl, if there is one.)doc");

  nb::class_<PyCommunicator>(module, "Communicator", R"doc(
A set of ranks with memory that all of them reach. Creation is collective: it succeeds on all ranks, or raises on all of
them, with the reason, within the rendezvous deadline. Collective calls are methods of its groups: `world`, and the parts
that split() makes.

A communicator lives until the last object made with it is gone. Its end waits for this rank's calls on the GPU, not for
other ranks. A child that fork() makes is no rank: every call on its copy raises Errc.unsupported. Importing weft
touches no GPU, so a child may make communicators of its own.)doc")
      .def_static(
          "from_environment",
          [](const Config& config) {
            return PyCommunicator(waiting([&] { return Communicator::from_environment(config); }));
          },
          nb::arg("config") = Config(), nb::sig("def from_environment(config: Config = ...) -> Communicator"), R"doc(
The ranks that torchrun, mpirun or srun has started; a world of one without a launcher.

WEFT_RENDEZVOUS=host:port overrides the meeting point. Processes of several hosts need WEFT_SECRET, 16 or more random
characters. Raises Errc.rendezvous with the variable that is missing or wrong.)doc")
      .def_static(
          "from_id",
          [](nb::bytes id, int rank, int world_size, const Config& config) {
            UniqueId unique;
            if (id.size() != unique.bytes.size())
              reject(fmt::format("id: {} bytes; create_id() gives {}", id.size(), unique.bytes.size()));
            std::memcpy(unique.bytes.data(), id.data(), id.size());
            return PyCommunicator(waiting([&] { return Communicator::from_id(unique, rank, world_size, config); }));
          },
          nb::arg("id"), nb::arg("rank"), nb::arg("world_size"), nb::arg("config") = Config(),
          nb::sig("def from_id(id: bytes, rank: int, world_size: int, config: Config = ...) -> Communicator"),
          "From an id of create_id(), which the caller has passed to all ranks. Waits for all of them, 72 at most.")
      .def_static(
          "create_id",
          [](const std::string& host) {
            const UniqueId id = waiting([&] { return UniqueId::create(host); });
            return nb::bytes(id.bytes.data(), id.bytes.size());
          },
          nb::arg("host") = "127.0.0.1", R"doc(
An id of 128 bytes for from_id(). It must be made in the process of rank 0, which then listens at `host`: a name or
address that every rank can reach. It is a secret, and whoever has it can take part.)doc")
      .def_static(
          "from_nccl",
          [](std::uintptr_t nccl, const Config& config) {
            return PyCommunicator(
                waiting([&] { return Communicator::from_nccl(reinterpret_cast<ncclComm*>(nccl), config); }));
          },
          nb::arg("nccl"), nb::arg("config") = Config(),
          nb::sig("def from_nccl(nccl: int, config: Config = ...) -> Communicator"),
          "From the address of an engine's ncclComm_t, which stays the engine's and must outlive this communicator.")
      .def_static(
          "local",
          [](int world_size, const Config& config) {
            nb::list ranks;
            for (Communicator& rank : waiting([&] { return Communicator::local(world_size, config); }))
              ranks.append(nb::cast(PyCommunicator(std::move(rank))));
            return ranks;
          },
          nb::arg("world_size"), nb::arg("config") = Config(),
          nb::sig("def local(world_size: int, config: Config = ...) -> list[Communicator]"),
          "Ranks as threads of this process, 72 at most: use each from a thread of its own. On GPUs, rank i has GPU i.")
      .def_prop_ro(
          "rank", [](const PyCommunicator& self) { return self->rank(); },
          "This process's or thread's rank: 0 … size − 1.")
      .def_prop_ro(
          "size", [](const PyCommunicator& self) { return self->size(); }, "Number of ranks.")
      .def_prop_ro(
          "device", [](const PyCommunicator& self) { return word_of(self->device()); }, "\"cpu\" or \"cuda\".")
      .def_prop_ro(
          "cuda_device", [](const PyCommunicator& self) { return self->world().cuda_device(); },
          "The number of this rank's GPU; −1 on CPU ranks.")
      .def_prop_ro(
          "world", [](const PyCommunicator& self) { return PyGroup(self->world()); },
          "The group of all ranks. Keep it: each question makes a new object.")
      .def(
          "split",
          [](const PyCommunicator& self, int color) -> std::optional<PyGroup> {
            Group group = waiting([&] { return self->split(color); });
            if (color < 0) return std::nullopt;
            return PyGroup(std::move(group));
          },
          nb::arg("color"), R"doc(
Splits the world into groups that work side by side. Ranks with the same `color`, 0 or more, form one, by world rank; a
rank with −1 takes part in the call and in no group, and gets None. Collective over all ranks, while no call of any group
runs. Split before graphs are captured.)doc")
      .def(
          "release", [](const PyCommunicator& self) { waiting([&] { self->release(); }); }, R"doc(
Frees the memory that peers write to, of engines that sleep. Collective, like acquire(). Calls on the GPU are finished
first. Calls in between are rejected with Errc.released.)doc")
      .def(
          "acquire", [](const PyCommunicator& self) { waiting([&] { self->acquire(); }); }, R"doc(
Takes the memory again. Graphs captured before stay valid if it comes back to the same addresses; otherwise their replays
end at once with Errc.released.)doc")
      .def(
          "abort", [](const PyCommunicator& self) { waiting([&] { self->abort(); }); },
          "Ends every current and later operation of every rank with Errc.aborted. From any thread; waits for no rank.")
      .def(
          "status",
          [](const PyCommunicator& self) {
            const std::optional<Fault> fault = self->status();
            return fault ? fault_of(*fault) : nb::none();
          },
          nb::sig("def status(self) -> weft._records.Fault | None"), "As Group.status().")
      .def(
          "check", [](const PyCommunicator& self) { self->check(); }, "As Group.check().")
      .def_prop_ro(
          "memory",
          [](const PyCommunicator& self) {
            const MemoryUse use = self->memory();
            return record("MemoryUse")(use.window, use.control);
          },
          nb::sig("def memory(self) -> weft._records.MemoryUse"), "Bytes that this communicator holds on each rank.")
      .def_prop_ro(
          "tuning", [](const PyCommunicator& self) { return self->world().tuning(); }, "As Group.tuning.")
      .def_prop_ro(
          "fabric", [](const PyCommunicator& self) { return self->fabric(); },
          "The path that carries data between ranks, and why: \"shared memory, 4 CPU ranks\".")
      .def_prop_ro(
          "multicast", [](const PyCommunicator& self) { return self->multicast(); },
          "Whether the multimem algorithms can be used, and any known obstacle.")
      .def("__repr__", [](const PyCommunicator& self) {
        return fmt::format("weft.Communicator(rank {} of {}, {})", self->rank(), self->size(), self->fabric());
      });
}

}  // namespace weft::python
