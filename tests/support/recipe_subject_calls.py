"""The cases of kind `call`: single functions of the API."""

from __future__ import annotations

import json
from typing import Any

from recipe_subject import ECHO, PROTOCOLS, Case, Result, Subject, fields, plain, png


class CallSubject(Subject):
    """A module, and the functions that the cases of kind `call` name."""

    def run_call(self, case: Case, body: Any) -> Result:
        call = case["call"]
        result: Result = plain(getattr(self, "call_" + call["fn"])(case, body, call.get("args", [])))
        return result

    def call_special_token(self, _case: Case, _body: Any, names: Any) -> Result:
        return {"value": {name: self.member("SpecialToken", name).default_str() for name in names}}

    def call_sse(self, _case: Case, _body: Any, _args: Any) -> Result:
        return {"value": {key: getattr(self.module, f"{name}Response").sse_done_data() for key, name in _protocols()}}

    def call_new_response(self, _case: Case, _body: Any, args: Any) -> Result:
        return {"value": {key: json.loads(self.make(f"{name}Response", *args).to_json()) for key, name in _protocols()}}

    def call_resolve_max_tokens(self, case: Case, body: Any, args: Any) -> Result:
        request = self._convert(case, body)
        return {"value": [self.attempt(request.resolve_max_tokens, *pair) for pair in args]}

    def call_namespace_tool_map(self, case: Case, body: Any, _args: Any) -> Result:
        return {"value": self.make("ResponsesRequest", body).namespace_tool_map(self.conversion_options(case))}

    def call_echo(self, _case: Case, body: Any, _args: Any) -> Result:
        return {"value": fields(self.make("ResponsesRequest", body).echo(), ECHO)}

    def call_image_token_adjustment(self, _case: Case, _body: Any, args: Any) -> Result:
        batches = [[self.make("ImageInfo", b"", *size) for size in sizes] for sizes in args]
        return {"value": [self.make("MultiModalData", images).image_token_adjustment() for images in batches]}

    def call_preprocess_size(self, _case: Case, _body: Any, args: Any) -> Result:
        preprocessor = self.make("OpenCvImagePreprocessor")

        def size(width: int, height: int, *options: Any) -> list[int]:
            image = preprocessor.preprocess(png(width, height), self.make("PreprocessOptions", *options))
            return [image.width, image.height]

        sizes = [self.attempt(size, *item) for item in args]
        for item in sizes:
            if isinstance(item, dict):
                item["error"] = {"kind": item["error"].get("kind")}
        return {"value": sizes}

    def call_resolve_images(self, _case: Case, _body: Any, args: Any) -> Result:
        parts = (self.make("ReqwestImageFetcher"), self.make("OpenCvImagePreprocessor"))
        quota = self.make("ImageQuota")
        images = self.make("ImageResolver", *parts).resolve([self.source(spec) for spec in args], quota).images
        sizes = [[image.width, image.height] for image in images]
        return {"value": sizes, "image_count": quota.image_count(), "byte_size": quota.byte_size()}

    def call_tokenizer_encode(self, case: Case, _body: Any, texts: Any) -> Result:
        tokenizer = self.tokenizer(case["model_version"])
        return {"value": [tokenizer.encode(text) for text in texts]}


def _protocols() -> Any:
    return PROTOCOLS.items()
