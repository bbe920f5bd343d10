"""Settings section ``ui``: the local web page and the API beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field, SecretStr, model_validator

from strandline.errors import ConfigurationError
from strandline.settings.selection import Section

_SHORTEST: Final = 16
"""Minimum length of a token, in characters."""


class UiSettings(Section):
    """Web page and API of `strandline ui`."""

    address: str = Field(
        "127.0.0.1",
        description="Network interface of the page, as an IP address or `localhost`. `0.0.0.0`: all interfaces. "
        "Elsewhere than on the loopback interface, every request needs the token.",
    )
    port: int = Field(8081, ge=1, le=65_535, description="TCP port of the page.")
    token: SecretStr | None = Field(
        None,
        min_length=_SHORTEST,
        description="Token that requests need, at least 16 characters. null: a new one at each start.",
    )
    token_file: str | None = Field(
        None, min_length=1, description="File that holds the token, instead of `token`. It is read at the start."
    )
    interval_ms: int = Field(
        5_000, ge=1_000, description="Time after which the page refreshes itself and reads the lake again, in ms."
    )
    preview_rows: int = Field(
        0,
        ge=0,
        le=100,
        description="Number of rows of a silver or gold table that the page shows. 0: no row, and no Data Docs. Above "
        "0, the page needs the token on the loopback interface, too.",
    )

    @model_validator(mode="after")
    def _check_token(self) -> UiSettings:
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file are both set; remove one")
        return self

    def known_token(self) -> str | None:
        """Return the token of the settings. None: none is set. I/O: reads `token_file`.

        Raises:
            ConfigurationError: The file cannot be read, or holds fewer than 16 characters.
        """
        if self.token_file is None:
            return None if self.token is None else self.token.get_secret_value()
        try:
            token = Path(self.token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"ui.token_file {self.token_file} cannot be read ({type(error).__name__})", next_step="correct its path"
            ) from None
        if len(token) < _SHORTEST:
            raise ConfigurationError(
                f"ui.token_file {self.token_file} holds fewer than {_SHORTEST} characters",
                next_step="write a longer token into it",
            )
        return token
