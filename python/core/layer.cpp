// MoeLayer: a whole layer of experts, whose GEMMs are functions of Python.
#include <fmt/format.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "binding.hpp"
#include "exchange_args.hpp"
#include "raised.hpp"

namespace weft::python {

namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

struct LayerOfExchange {
  MoeLayer layer;
  MoeExchange exchange;
  Group group;
  MoeLayerArgs args;
};
using PyLayer = Owned<LayerOfExchange>;

// The arguments of a GEMM. Tensors are views of the workspace, and hold it as the caller's tensor does.
struct PyGemm {
  std::string which, layout;
  std::uint32_t round, first_expert, experts, capacity;
  int num_sms;
  std::uintptr_t stream;
  Tensor input, output, counts;
  std::optional<Tensor> input_scales, offsets;
};

// The arguments of a shared expert. Its inputs are the objects that run() was given.
struct PyShared {
  nb::object input, scales, residual;
  Tensor output;
  std::uint32_t tokens, hidden;
  int num_sms;
  std::uintptr_t stream;
};

class Views {
 public:
  Views(const LayerOfExchange& of, const Tensor& workspace) : of_(of), workspace_(workspace) {}

  PyGemm gemm(const ExpertGemm& given) const {
    const MoeExchangeArgs& args = of_.exchange.args();
    const bool up = given.which == ExpertGemm::Which::up;
    const RowCast cast = up ? args.cast : of_.args.down_cast;
    const bool bytes = cast != RowCast::none || (up && args.type == RowType::fp8);
    const std::string_view type = !up ? name(args.combine_type) : args.type == RowType::f16 ? "f16" : "bf16";
    const std::int64_t local = of_.exchange.local_experts();
    PyGemm gemm{.which = up ? "up" : "down",
                .layout = word_of(given.layout),
                .round = given.round,
                .first_expert = given.first_expert,
                .experts = given.experts,
                .capacity = given.capacity,
                .num_sms = given.num_sms,
                .stream = reinterpret_cast<std::uintptr_t>(given.stream),
                .input = rows(given.input, bytes ? "e4m3" : type, given.input_columns),
                .output = rows(given.output, name(args.combine_type), given.output_columns),
                .counts = at(given.counts, "i32", {local}),
                .input_scales = {},
                .offsets = {}};
    if (given.offsets != nullptr) gemm.offsets = at(given.offsets, "i32", {local + 1});
    if (bytes) gemm.input_scales = scales(given, cast);
    return gemm;
  }
  Tensor shared(const SharedExpert& given) const {
    return at(given.output, name(of_.exchange.args().combine_type), {given.tokens, given.hidden});
  }

 private:
  Tensor at(const void* data, std::string_view type, const std::vector<std::int64_t>& shape) const {
    Tensor view = workspace_;
    if (view.on_gpu()) view.device.device_id = of_.group.cuda_device();  // an interface may not say it
    view.data = static_cast<char*>(const_cast<void*>(data));
    view.type = type_of(type);
    set_shape("workspace", view, shape);
    set_dense_strides(view);
    return view;
  }
  // [rows of all experts, columns], with a dimension for experts where each has as many.
  Tensor rows(const void* data, std::string_view type, std::int64_t columns) const {
    const std::int64_t all = of_.exchange.output_rows(), local = of_.exchange.local_experts();
    if (of_.exchange.args().layout == RowLayout::expert_contiguous) return at(data, type, {all, columns});
    return at(data, type, {local, local == 0 ? 0 : all / local, columns});
  }
  Tensor scales(const ExpertGemm& given, RowCast cast) const {
    const MoeExchangeArgs& args = of_.exchange.args();
    const std::int64_t groups = given.input_columns / kScaleColumns;
    if (cast == RowCast::none) return rows(given.input_scales, "u8", args.scale_bytes);  // as dispatch was given them
    const std::string_view type = cast == RowCast::fp8_ue8m0 ? "u8" : "f32";
    if (args.scale_order == ScaleOrder::rows) return rows(given.input_scales, type, groups);
    const auto bytes = static_cast<std::int64_t>(
        cast_scale_bytes(of_.exchange.output_rows(), given.input_columns, cast, args.scale_order));
    return at(given.input_scales, type, {type == "u8" ? bytes : bytes / 4});
  }

  const LayerOfExchange& of_;
  const Tensor& workspace_;
};

// The layer calls it where no thread of Python's runs. An exception of the function leaves the layer's call.
GroupedGemm grouped_gemm(const char* argument, nb::handle function, const LayerOfExchange& of,
                         const Tensor& workspace) {
  if (PyCallable_Check(function.ptr()) == 0)
    reject_type(fmt::format("{}: must be a function of an ExpertGemm", argument));
  return [function, views = Views(of, workspace)](const ExpertGemm& given) {
    raising([&] { function(nb::cast(views.gemm(given))); });
  };
}

// Tensors and functions of a call, which the caller holds until it returns, and a recording until it ends.
struct Given {
  nb::handle output, input, topk_ids, topk_weights, scales, residual, workspace, up, down, shared, observe;
};

SharedRows shared_rows(const Given& of_call, const LayerOfExchange& of, const Tensor& workspace) {
  if (of_call.shared.is_none()) return {};
  if (PyCallable_Check(of_call.shared.ptr()) == 0) reject_type("shared: must be a function of a SharedExpert, or None");
  return [of_call, views = Views(of, workspace)](const SharedExpert& given) {
    raising([&] {
      of_call.shared(nb::cast(PyShared{.input = nb::borrow(of_call.input),
                                       .scales = nb::borrow(of_call.scales),
                                       .residual = nb::borrow(of_call.residual),
                                       .output = views.shared(given),
                                       .tokens = given.tokens,
                                       .hidden = given.hidden,
                                       .num_sms = given.num_sms,
                                       .stream = reinterpret_cast<std::uintptr_t>(given.stream)}));
    });
  };
}

// An exception of the function leaves the layer's call, as one of a GEMM does.
LayerObserver observer(nb::handle function) {
  if (function.is_none()) return {};
  if (PyCallable_Check(function.ptr()) == 0) reject_type("observe: must be a function, or None");
  return [function](const LayerPart& part) {
    raising([&] {
      function(std::string(name(part.which)).c_str(), part.round, part.begins,
               reinterpret_cast<std::uintptr_t>(part.stream));
    });
  };
}

Tensor take_workspace(const LayerOfExchange& of, Tensors& tensors, nb::handle given) {
  Tensor workspace = tensors.output("workspace", given);
  const std::size_t needed = of.layer.workspace_bytes() + kWorkspaceAlignment - 1;
  if (!workspace.dense() || workspace.bytes() < needed)
    reject(fmt::format("workspace: {} bytes{}; it must be {} or more that lie side by side", workspace.bytes(),
                       workspace.dense() ? "" : " with gaps", needed));
  return workspace;
}
// Functions know the layer, the workspace and the call's objects by their addresses. A recording calls them again.
const Tensor& kept(const PyLayer& layer, const Tensor& workspace, std::initializer_list<nb::handle> objects) {
  if (recorded == nullptr) return workspace;
  recorded->objects.push_back(nb::find(layer));
  for (const nb::handle object : objects) recorded->objects.push_back(nb::borrow(object));
  return recorded->tensors.emplace_back(workspace);
}
void* aligned(const Tensor& workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  return workspace.data + (kWorkspaceAlignment - address % kWorkspaceAlignment) % kWorkspaceAlignment;
}

void run(const PyLayer& self, const Given& given, const MoeLayerCall& choices, Word<LayerSchedule> schedule,
         nb::handle rounds, nb::handle stream, std::uint32_t tag) {
  const LayerOfExchange& of = *self;
  GivenRounds division({1});
  Tensor workspace;
  const auto build = [&](Tensors& tensors) {
    division = given_rounds(rounds);
    const ExchangeShapes shapes(of.exchange, of.group);
    DispatchArgs sent{};
    const Tensor &ids = tensors.input("topk_ids", given.topk_ids), &rows = tensors.input("input", given.input);
    const auto weights = tensors.optional("topk_weights", given.topk_weights, Access::read);
    const auto scales = tensors.optional("scales", given.scales, Access::read);
    const auto residual = tensors.optional("residual", given.residual, Access::read);
    const Tensor& output = tensors.output("output", given.output);
    set_inputs(sent, shapes, {&rows, &ids, address(weights), address(scales)});
    const CombineArgs back =
        combine_args(shapes, {.tokens = sent.tokens}, {&output, nullptr, nullptr, address(residual), nullptr});
    workspace = take_workspace(of, tensors, given.workspace);
    const Tensor& seen =
        kept(self, workspace,
             {given.input, given.scales, given.residual, given.up, given.down, given.shared, given.observe});
    MoeLayerCall call = choices;
    call.input = sent.input;
    call.scales = sent.scales;
    call.topk_ids = sent.topk_ids;
    call.topk_ids_are_i64 = sent.topk_ids_are_i64;
    call.topk_weights = sent.topk_weights;
    call.tokens = sent.tokens;
    call.residual = back.residual;
    call.output = back.output;
    call.workspace = aligned(workspace);
    call.up = grouped_gemm("up", given.up, of, seen);
    call.down = grouped_gemm("down", given.down, of, seen);
    call.shared = shared_rows(given, of, seen);
    call.observe = observer(given.observe);
    call.schedule = value_of("schedule", schedule);
    call.rounds = division.rounds();
    return call;
  };
  make_call(
      of.group, {.stream = stream, .tag = tag}, build,
      [&](const MoeLayerCall& call) { passing_on([&] { of.layer.run(call); }); },
      [&](const char* reason, Stream at) { of.exchange.refuse_dispatch(reason, at); });
}

void run_experts(const PyLayer& self, nb::handle given, nb::handle up, nb::handle down, nb::handle rounds,
                 std::uint32_t most_tokens, nb::handle stream, int up_num_sms, int down_num_sms) {
  const LayerOfExchange& of = *self;
  const GivenRounds division = given_rounds(rounds);
  Tensor workspace;
  const auto build = [&](Tensors& tensors) {
    workspace = take_workspace(of, tensors, given);
    const Tensor& seen = kept(self, workspace, {up, down});
    return MoeLayerCall{.most_tokens = most_tokens,
                        .workspace = aligned(workspace),
                        .up = grouped_gemm("up", up, of, seen),
                        .down = grouped_gemm("down", down, of, seen),
                        .schedule = division.rounds().count == 1 ? LayerSchedule::plain : LayerSchedule::rounds,
                        .rounds = division.rounds(),
                        .up_num_sms = up_num_sms,
                        .down_num_sms = down_num_sms};
  };
  make_call(
      of.group, {.stream = stream}, build,
      [&](const MoeLayerCall& call) { passing_on([&] { of.layer.run_experts(call); }); }, [](const char*, Stream) {});
}

}  // namespace

void bind_layer(nb::module_& module) {
  nb::class_<PyGemm>(module, "ExpertGemm", R"doc(
A grouped GEMM of a layer, for the caller to make: enqueued on `stream`, or made before the function returns on CPU
ranks. For each local expert e of first_expert … first_expert + experts − 1 and each of its counts[e] rows:

    output row = input row · weights of e

Rows of e are input[e, :counts[e]] (expert_masked), or begin at input[offsets[e]] (expert_contiguous), and so for output.
Counts include rows without room, which there may be with a small capacity: those at capacity and beyond are left out.
Rows of other experts must not be written, since others may read or write them meanwhile. Tensors are weft.Tensor, for
DLPack, and views of the layer's workspace.)doc")
      .def_ro("which", &PyGemm::which,
              "\"up\": hidden columns to gate, then up; \"down\": intermediate columns to hidden.")
      .def_ro("layout", &PyGemm::layout, nb::sig("def layout(self) -> weft._words.RowLayout"), "Of the exchange.")
      .def_ro("round", &PyGemm::round, "Of the layer's rounds; 0 if all experts are made at once.")
      .def_ro("first_expert", &PyGemm::first_expert, "A local number.")
      .def_ro("experts", &PyGemm::experts, "The number of local experts.")
      .def_ro("capacity", &PyGemm::capacity, "Rows of one expert; expert_contiguous: of all.")
      .def_ro("num_sms", &PyGemm::num_sms, "Processors that the GEMM may use; 0: all.")
      .def_ro("stream", &PyGemm::stream, "An address; 0 on CPU ranks.")
      .def_ro("input", &PyGemm::input, "[local experts, capacity, columns], or contiguous [capacity, columns].")
      .def_ro("output", &PyGemm::output, "As input, of combine_type.")
      .def_ro("counts", &PyGemm::counts, "i32 [local experts], complete when the GEMM runs.")
      .def_ro("input_scales", &PyGemm::input_scales,
              "If the input has scales: shaped like it in scale_order \"rows\", else of one dimension.")
      .def_ro("offsets", &PyGemm::offsets, "i32 [local experts + 1], if contiguous.");

  nb::class_<PyShared>(module, "SharedExpert",
                       nb::type_slots(collected<PyShared, &PyShared::input, &PyShared::scales, &PyShared::residual>),
                       R"doc(
The shared expert of a layer, for the caller to make: enqueued on `stream`, or made before the function returns on CPU
ranks. For each of this rank's tokens:

    output row = the shared expert's row of the input row, plus the residual's row if there is one

input, scales and residual are the objects that run() was given, output a weft.Tensor in the layer's workspace.)doc")
      .def_ro("input", &PyShared::input, "[tokens, hidden].")
      .def_ro("scales", &PyShared::scales, "Or None.")
      .def_ro("residual", &PyShared::residual, "[tokens, hidden], or None.")
      .def_ro("output", &PyShared::output, "[tokens, hidden] of combine_type.")
      .def_ro("tokens", &PyShared::tokens, "This rank's tokens.")
      .def_ro("hidden", &PyShared::hidden, "Columns of a row.")
      .def_ro("num_sms", &PyShared::num_sms, "Processors that it may use; 0: all.")
      .def_ro("stream", &PyShared::stream, "An address; 0 on CPU ranks.");

  nb::class_<PyLayer>(module, "MoeLayer", R"doc(
A whole layer of experts over an exchange: dispatch, up and gate GEMM, silu(gate) · up, down GEMM, combine. The parts run
one after the other or in rounds, all with the same bits. The GEMMs are the caller's functions.

On GPUs a call enqueues everything behind the work of its stream, and what the stream gets next comes behind it; a CUDA
graph captures all of it. One call of a layer at a time may run on the GPU. CPU ranks make every part in the calling
thread.)doc")
      .def_static(
          "create",
          [](const PyExchange& exchange, std::uint32_t intermediate, Word<RowCast> down_cast) -> PyLayer {
            const MoeLayerArgs args{.intermediate = intermediate, .down_cast = value_of("down_cast", down_cast)};
            return LayerOfExchange{MoeLayer::create(exchange->exchange, args), exchange->exchange, exchange->group,
                                   args};
          },
          nb::arg("exchange"), nb::kw_only(), nb::arg("intermediate"), nb::arg("down_cast") = "none", R"doc(
The exchange's layout is expert_masked or expert_contiguous; it may have several layers. Not collective.

intermediate: columns of an expert's middle, a multiple of 8, with a cast of 128. down_cast: what the activation makes of
its rows for the down GEMM, "none", "fp8", "fp8_ue8m0" or "fp8_pow2", with scales like those of dispatch.)doc")
      .def_prop_ro(
          "workspace_bytes",
          [](const PyLayer& self) { return self->layer.workspace_bytes() + kWorkspaceAlignment - 1; },
          "Bytes of a call's workspace, which may begin anywhere.")
      .def(
          "run",
          [](const PyLayer& self, nb::handle output, nb::handle input, nb::handle topk_ids, nb::handle topk_weights,
             nb::handle up, nb::handle down, nb::handle workspace, nb::handle scales, nb::handle residual,
             Word<LayerSchedule> schedule, nb::handle rounds, std::uint32_t most_tokens, std::uint32_t map,
             nb::handle stream, std::uint32_t tag, int send_num_sms, int recv_num_sms, int combine_send_num_sms,
             int combine_recv_num_sms, int up_num_sms, int down_num_sms, bool alone_by_size, nb::handle observe,
             nb::handle shared, int shared_num_sms, int cluster) {
            run(self, {output, input, topk_ids, topk_weights, scales, residual, workspace, up, down, shared, observe},
                {.most_tokens = most_tokens,
                 .map = map,
                 .send_num_sms = send_num_sms,
                 .recv_num_sms = recv_num_sms,
                 .combine_send_num_sms = combine_send_num_sms,
                 .combine_recv_num_sms = combine_recv_num_sms,
                 .alone_by_size = alone_by_size,
                 .cluster = cluster,
                 .up_num_sms = up_num_sms,
                 .down_num_sms = down_num_sms,
                 .shared_num_sms = shared_num_sms},
                schedule, rounds, stream, tag);
          },
          nb::arg("output"), nb::arg("input"), nb::arg("topk_ids"), nb::arg("topk_weights") = nb::none(), nb::kw_only(),
          nb::arg("up"), nb::arg("down"), nb::arg("workspace"), nb::arg("scales") = nb::none(),
          nb::arg("residual") = nb::none(), nb::arg("schedule") = "automatic", nb::arg("rounds") = 1,
          nb::arg("most_tokens") = 0, nb::arg("map") = 0, nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
          nb::arg("send_num_sms") = 0, nb::arg("recv_num_sms") = 0, nb::arg("combine_send_num_sms") = 0,
          nb::arg("combine_recv_num_sms") = 0, nb::arg("up_num_sms") = 0, nb::arg("down_num_sms") = 0,
          nb::arg("alone_by_size") = false, nb::arg("observe") = nb::none(), nb::arg("shared") = nb::none(),
          nb::arg("shared_num_sms") = 0, nb::arg("cluster") = 0,
          nb::sig("def run(self, output: object, input: object, topk_ids: object, topk_weights: object = None, "
                  "*, up: collections.abc.Callable[[ExpertGemm], object], down: "
                  "collections.abc.Callable[[ExpertGemm], object], workspace: object, scales: object = None, "
                  "residual: object = None, schedule: weft._words.LayerSchedule = 'automatic', rounds: int | "
                  "collections.abc.Sequence[int] = 1, most_tokens: int = 0, map: int = 0, stream: object = None, "
                  "tag: int = 0, send_num_sms: int = 0, recv_num_sms: int = 0, combine_send_num_sms: int = 0, "
                  "combine_recv_num_sms: int = 0, up_num_sms: int = 0, down_num_sms: int = 0, alone_by_size: "
                  "bool = False, observe: collections.abc.Callable[[str, int, bool, int], object] | None = None, "
                  "shared: collections.abc.Callable[[SharedExpert], object] | None = None, shared_num_sms: int = "
                  "0, cluster: int = 0) -> None"),
          R"doc(
output = for each of this rank's tokens the weighted sum of what its experts make of it, then the residual. Collective,
like the exchange's dispatch and combine, and so are tensors and errors.

up, down: functions that make, or enqueue, the GEMM that they are given (weft.ExpertGemm). They are called in the calling
thread before run() returns, in a captured graph only while it is captured. A weft.Recording does not call them in its
capture, but in each replay. An exception of theirs leaves run(), or replay(), with the call unfinished; the other ranks
end at once, and their errors name this rank, the GEMM and its round.
shared: like them, for the shared expert (weft.SharedExpert): beside everything in front of combine, or of its wait. Its
rows take the place of the residual, which it adds itself. It is not called on a rank without tokens.
workspace: bytes of any tensor, workspace_bytes of them, for this call alone until it has run, and in its replays.
schedule: "plain", one part after the other; "rounds", dispatch, GEMMs and combine of different rounds at once;
"combine_rounds", only combine beside the down GEMM; "automatic", as the tuning table for such a layer and most_tokens
says (Config's tuning_file), plain without one. rounds: as in Exchange.dispatch_send, of the two with rounds.
most_tokens, map: as in dispatch. The numbers of processors are those of DeepEP's pull request 492; 0: chosen by size, or
by the table (shared_num_sms: all). With alone_by_size those of dispatch and combine hold only beside GEMMs of the call.
observe: for traces, called in front of each part and behind it. It takes the part's name ("dispatch wait"), its round,
whether it begins, and its stream as an integer. It may record events there. cluster: of dispatch and combine.)doc")
      .def("run_experts", run_experts, nb::arg("workspace"), nb::kw_only(), nb::arg("up"), nb::arg("down"),
           nb::arg("rounds") = 1, nb::arg("most_tokens") = 0, nb::arg("stream") = nb::none(), nb::arg("up_num_sms") = 0,
           nb::arg("down_num_sms") = 0,
           nb::sig("def run_experts(self, workspace: object, *, up: collections.abc.Callable[[ExpertGemm], object], "
                   "down: collections.abc.Callable[[ExpertGemm], object], rounds: int | collections.abc.Sequence[int] "
                   "= 1, most_tokens: int = 0, stream: object = None, up_num_sms: int = 0, down_num_sms: int = 0) -> "
                   "None"),
           "The experts alone, of the rows that the last call has left in `workspace`. Local; for measurements.");
}

}  // namespace weft::python
