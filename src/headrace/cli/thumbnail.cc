// headrace thumbnail: writes a small picture of one image, or a region of it, as a file.
#include "headrace/codec/thumbnail.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "headrace/base/text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/find_sample.h"
#include "headrace/cli/locate.h"
#include "headrace/codec/image_encoder.h"
#include "headrace/dataset/dataset.h"

namespace headrace::cli {
namespace {

using codec::EncodedFormat;
using dataset::Dataset;
using dataset::FieldView;
using dataset::SampleView;

class ThumbnailCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Status ReadOptions(const Session& session);
  Result<const FieldView*> ChooseField(const Dataset& data, const SampleView& view) const;
  Status Write(Session* session, const std::string& file) const;

  std::string dataset_, output_ = "-", region_, format_ = "auto";
  std::vector<std::string> operands_;
  std::optional<uint64_t> index_;
  uint64_t size_ = 256;
  std::string key_, field_;
  codec::ThumbnailOptions options_;
  EncodedFormat encoded_ = EncodedFormat::kPng;
};

void ThumbnailCommand::Declare(Arguments* arguments) {
  arguments->Text("dataset", &dataset_, "A data set, tar, folder or list, by path or URL");
  arguments->Texts("what", &operands_, 0,
                   "KEY [FIELD], or with --index only [FIELD]; without a field the sample's image");
  arguments->Count("--index", &index_, "The sample with this number, counted from 0, not a key");
  arguments->Count(
      "--size", &size_,
      "Most pixels of the longer side; 0 for no limit. The other side follows, nothing "
      "is enlarged");
  arguments->Text("--region", &region_,
                  "X,Y,WIDTH,HEIGHT in pixels of the upright image; without it all of it");
  arguments->Text("-o,--output", &output_, "The file to write; - for standard output");
  arguments->Choice("--format", &format_, {"auto", "png", "jpg", "ppm"},
                    "auto: by the file's ending, and PNG for standard output");
  arguments->Note(
      "Turned upright as Exif says. With seek points only the region is decoded. --json says what "
      "was written;\nit needs --output.");
  arguments->Example("headrace thumbnail packed/ cat/0001 -o small.png", "At most 256 pixels wide");
  arguments->Example(
      "headrace thumbnail packed/ --index 0 --region 100,50,300,200 --size 0 -o part.png",
      "A part of the first image, pixel for pixel");
}

Result<codec::Rect> ParseRegion(std::string_view text) {
  std::array<uint32_t, 4> numbers{};
  const char* at = text.data();
  const char* end = at + text.size();
  bool valid = true;
  for (size_t i = 0; valid && i < numbers.size(); ++i) {
    if (i != 0) {
      valid = at != end && *at == ',';
      at += valid ? 1 : 0;
    }
    auto [after, error] = std::from_chars(at, end, numbers[i]);
    valid = valid && error == std::errc();
    at = after;
  }
  if (!valid || at != end || numbers[2] == 0 || numbers[3] == 0)
    return Error(Code::kInvalidArgument,
                 "--region: expected X,Y,WIDTH,HEIGHT such as 100,50,300,200, found '{}'",
                 EscapeText(text));
  return codec::Rect{numbers[0], numbers[1], numbers[2], numbers[3]};
}

Status ThumbnailCommand::ReadOptions(const Session& session) {
  const size_t keys = index_ ? 0 : 1;
  if (operands_.size() < keys)
    return Status(Code::kInvalidArgument, "which sample? Give a KEY, or --index N");
  if (operands_.size() > keys + 1)
    return Status(Code::kInvalidArgument, "expected DATASET KEY [FIELD], or --index N and [FIELD]");
  if (keys == 1) key_ = operands_[0];
  if (operands_.size() > keys) field_ = operands_[keys];
  if (session.json && output_ == "-")
    return Status(Code::kInvalidArgument,
                  "--json and the image cannot both go to standard output: name a file with "
                  "--output");
  options_.long_side = static_cast<uint32_t>(std::min<uint64_t>(size_, UINT32_MAX));
  if (!region_.empty()) {
    HR_ASSIGN_OR_RETURN(options_.region, ParseRegion(region_));
  }
  auto is = [&](std::string_view format, std::string_view ending) {
    return format_ == format || (format_ == "auto" && output_.ends_with(ending));
  };
  if (is("jpg", ".jpg") || is("jpg", ".jpeg"))
    encoded_ = EncodedFormat::kJpeg;
  else if (is("ppm", ".ppm"))
    encoded_ = EncodedFormat::kPpm;
  else if (!is("png", ".png") && output_ != "-")
    return Error(Code::kInvalidArgument,
                 "'{}' does not end in .png, .jpg or .ppm: say the format with --format",
                 EscapeText(output_));
  return OkStatus();
}

Result<const FieldView*> ThumbnailCommand::ChooseField(const Dataset& data,
                                                       const SampleView& view) const {
  const FieldView* image = nullptr;
  std::string names;
  for (const FieldView& field : view.fields) {
    const std::string& name = data.fields()[field.field];
    if (name == field_) return &field;
    names += (names.empty() ? "" : ", ") + EscapeText(name);
    if (!field_.empty() || codec::DetectImageFormat(field.data) == codec::ImageFormat::kUnknown)
      continue;
    if (image)
      return Error(Code::kInvalidArgument, "which image of '{}'? It has {}", EscapeText(view.key),
                   names);
    image = &field;
  }
  if (image) return image;
  return Error(Code::kNotFound, "sample '{}' has no {}; it has {}", EscapeText(view.key),
               field_.empty() ? "image" : fmt::format("field '{}'", EscapeText(field_)), names)
      .At({std::string(view.shard), {}, std::string(view.key), {}});
}

Status ThumbnailCommand::Write(Session* session, const std::string& file) const {
  if (output_ != "-") return session->fs->WriteAtomically(output_, AsBytes(file));
  session->out->Write(AsBytes(file));
  return OkStatus();
}

Result<ExitCode> ThumbnailCommand::Run(Session* session) {
  HR_RETURN_IF_ERROR(ReadOptions(*session));
  HR_ASSIGN_OR_RETURN(object::Place place, Locate(*session, dataset_));
  HR_ASSIGN_OR_RETURN(auto data, Dataset::Open(place.fs, place.path, {}));
  HR_ASSIGN_OR_RETURN(uint64_t id, FindSample(*data, index_, key_));
  dataset::ReadOptions read;
  read.seek_points = true;
  auto reader = dataset::SampleReader::Create(data, read);
  HR_ASSIGN_OR_RETURN(SampleView view, reader->Read(id, {}, session->ctx));
  HR_ASSIGN_OR_RETURN(const FieldView* field, ChooseField(*data, view));
  const std::string& name = data->fields()[field->field];
  codec::Scratch scratch;
  AlignedBuffer memory;
  auto made = codec::MakeThumbnail(field->data, {field->seek_points, field->crc32c}, options_,
                                   &scratch, &memory);
  if (made.status().code() == Code::kOutOfRange)
    return Error(Code::kInvalidArgument, "--region: {}", made.status().message());
  if (!made.ok()) return reader->AtField(made.status(), view, field->field);
  HR_ASSIGN_OR_RETURN(std::string file, codec::EncodeImage(made->pixels, encoded_));
  HR_RETURN_IF_ERROR(Write(session, file));
  if (!session->json) return ExitCode::kOk;
  const codec::DecodeCounts& counts = scratch.decode_counts();
  const auto path = std::max_element(counts.begin(), counts.end()) - counts.begin();
  session->out->Print(
      Json::MakeObject()
          .Set("index", view.id)
          .Set("key", EscapeText(view.key))
          .Set("field", EscapeText(name))
          .Set("image",
               Json::MakeObject().Set("width", made->image.width).Set("height", made->image.height))
          .Set("width", made->pixels.width)
          .Set("height", made->pixels.height)
          .Set("decode", codec::SeekRefusalName(static_cast<codec::SeekRefusal>(path)))
          .Set("file", EscapeText(output_))
          .Set("bytes", static_cast<uint64_t>(file.size())));
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeThumbnailCommand() { return std::make_unique<ThumbnailCommand>(); }

}  // namespace headrace::cli
