// The options that choose a command's model: a preset or a config.json.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "models/models.hpp"

namespace weft::cli {

class ModelChoice {
 public:
  // `preset`: the default, or empty for none.
  explicit ModelChoice(std::string preset = {}) : model_(std::move(preset)) {}

  // `option` names the preset's option (--model), `what` its purpose. This object must not move afterwards.
  void add_to(CLI::App& app, const std::string& option, const std::string& what);
  void excludes(CLI::Option* other) const;

  // True if the user chose a model.
  bool given() const { return preset_->count() + config_->count() != 0; }
  // Warns of unread fields. Throws Errc::invalid_argument.
  ModelShape shape() const;
  ModelShape shape_with_experts() const;

 private:
  std::string model_, config_file_;
  CLI::Option* preset_ = nullptr;
  CLI::Option* config_ = nullptr;
};

}  // namespace weft::cli
