package org.apache.hadoop.fs;

/** The part of Hadoop's class that the log store uses. See java/README.md. */
public interface FSBuilder<S, B extends FSBuilder<S, B>> {
    B must(String key, String value);
}
